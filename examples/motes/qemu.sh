#!/usr/bin/env bash
# Runs an image under QEMU and prints its log: ./qemu.sh IMAGE SERVER IDENTITY KEY
#
# SERVER is the address and port of the server as the mote sees it, 10.0.2.2:5684 for one on this machine. KEY is in hex.
set -euo pipefail
image=$1
shift
for program in qemu-system-arm defmt-print; do
    command -v $program >/dev/null && continue
    echo "$program is missing; type: apt install qemu-system-arm; cargo install --locked defmt-print" >&2
    exit 1
done
# The emulated board has no generator of random numbers: each run gets a seed of the host.
seed=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')
qemu-system-arm -machine lm3s6965evb -nic user,model=stellaris -display none -serial none -monitor none \
    -semihosting-config enable=on,target=native -kernel "$image" -append "$* $seed" </dev/null |
    defmt-print -e "$image"
