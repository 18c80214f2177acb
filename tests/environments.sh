# Sourced by the scripts that make environments for tests: finding interpreters, saying what goes on.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '\n== %s\n' "$*"; }

# Prints the interpreter of a version: from PATH, else from pyenv.
interpreter() {
  local root
  root=${PYENV_ROOT:-$(command -v pyenv >/dev/null 2>&1 && pyenv root || echo "${HOME:-/}/.pyenv")}
  command -v "python$1" 2>/dev/null | grep -v /shims/ && return
  ls -d "$root/versions/$1".*/bin/python 2>/dev/null | sort -V | tail -n 1
}

# Prints the first interpreter that is there of the versions that most packages have their wheels for.
usual_interpreter() {
  local version found
  for version in 3.11 3.12 3.13; do
    found=$(interpreter "$version" || true)
    [ -z "$found" ] || { echo "$found"; return; }
  done
  echo "Python 3.11, 3.12 or 3.13 is needed" >&2
  return 1
}
