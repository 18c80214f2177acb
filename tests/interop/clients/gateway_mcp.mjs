// An MCP client made with the npm package: everything the gateway offers, all at once.
//
//     node gateway_mcp.mjs SDK_FOLDER URL KEY
//
// Prints one line of JSON: what it saw, for the test to compare with what every client has to see.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url, key] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(join(folder, "dist", "esm", "client", name)).href);
const { Client } = await load("index.js");
const { StreamableHTTPClientTransport } = await load("streamableHttp.js");

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${key}` } },
});
const client = new Client({ name: "interop", version: "1.0.0" });
await client.connect(transport);

async function told(call) {
  try {
    const result = await call;
    if (result.content) return [Boolean(result.isError), ...result.content.map((block) => block.text)];
    if (result.contents) return result.contents.map((entry) => [entry.uri, entry.mimeType, entry.text]);
    return result.messages.map((entry) => [entry.role, entry.content.text]);
  } catch (error) {
    return ["raised", error.message];
  }
}

const seen = { version: transport.protocolVersion };
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
seen.resources = (await client.listResources()).resources.map((entry) => entry.uri);
seen.prompts = (await client.listPrompts()).prompts.map((entry) => entry.name);

const call = (name, args) => told(client.callTool({ name, arguments: args }));
const waiting = {};
for (let order = 0; order < 30; order++) waiting[`order ${order}`] = call("get_order", { order_id: String(order) });
waiting["failing"] = call("get_order", { order_id: "nope" });
waiting["raising"] = call("breaks", {});
waiting["invalid"] = call("get_order", { order_id: 5 });
waiting["late"] = call("hangs", {});
waiting["all orders"] = told(client.readResource({ uri: "orders://all" }));
waiting["broken resource"] = told(client.readResource({ uri: "orders://broken" }));
waiting["prompt"] = told(client.getPrompt({ name: "summarise", arguments: { order_id: "7" } }));
waiting["broken prompt"] = told(client.getPrompt({ name: "breaking", arguments: {} }));

const names = Object.keys(waiting);
const answers = await Promise.all(Object.values(waiting));
seen.answers = Object.fromEntries(names.map((name, place) => [name, answers[place]]));
await client.close();
console.log("SEEN " + JSON.stringify(seen));
