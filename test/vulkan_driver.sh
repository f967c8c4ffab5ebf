#!/bin/sh
# A Vulkan driver for the tests: lavapipe, where we may install it. Without one, tests on Vulkan are skipped.
if ldconfig -p 2>/dev/null | grep -q libvulkan.so.1 && ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null | grep -q .; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Vulkan driver: tests on Vulkan are skipped (Debian: apt-get install mesa-vulkan-drivers libvulkan1)"
    exit 0
fi
echo "installing a Vulkan driver (mesa-vulkan-drivers, libvulkan1)"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1; }
(install || { apt-get update -qq && install; }) </dev/null >apt.log 2>&1 && rm -f apt.log ||
    echo "it cannot be installed (see apt.log): tests on Vulkan are skipped"
