#!/bin/bash
# Double-click this in the Finder: Splash starts with the last model, the console opens, and the window may be closed.
#
# macOS refuses a script that a browser has downloaded ("cannot be opened because Apple cannot check it").
# Say once, in a Terminal, in the folder of Splash:   xattr -dr com.apple.quarantine .
set -euo pipefail

say_why_and_stay() {
  echo
  echo "Splash did not start. What is above says why; \`splash logs control\` in the folder of Splash says more."
  if [ -t 0 ]; then
    read -r -p "Press Return to close this. " _ || true
  fi
  exit 1
}

main() {
  cd "$(dirname "$0")/.."
  if [ ! -x .venv/bin/splash ]; then
    make env
  fi
  # It returns when the model is ready, and opens the console with a link that is good once.
  .venv/bin/splash up
  echo
  echo "Splash goes on without this window: close it. \`splash quit\`, or Quit in the console, ends it."
}

# In a shell of its own: `set -e` does not hold in what stands before `||`.
if [ "${1:-}" = "--here" ]; then
  main
else
  /bin/bash "$0" --here || say_why_and_stay
fi
