#!/bin/sh
# A browser for the tests of reports: Debian's chromium, where we may install it. Without one, they are skipped.
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no chromium: tests in a browser are skipped (Debian: apt-get install chromium chromium-driver)"
    exit 0
fi
echo "installing a browser (chromium, chromium-driver)"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; }
(install || { apt-get update -qq && install; }) </dev/null >apt.log 2>&1 && rm -f apt.log ||
    echo "it cannot be installed (see apt.log): tests in a browser are skipped"
