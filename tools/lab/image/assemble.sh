# Puts the golden image together. Runs in a mount namespace of its own, in a scratch directory that has overlay/ and
# customize.sh. PACKAGES is the archive of the installed system, OUT the image to make.

mkdir root
truncate -s "${DISK_MIB}M" disk.raw
# One bootable partition behind the first MiB, where the boot loader's first stage lies.
echo '2048,,L,*' | sfdisk --quiet disk.raw
offset=$((2048 * 512))
# Without the two features extlinux cannot read the file system; uninit_bg keeps growing it quick without them.
mkfs.ext4 -q -L root -O '^64bit,^metadata_csum,uninit_bg' -m 1 -E "offset=$offset" disk.raw "$((DISK_MIB - 1))M"
mount -o "loop,offset=$offset,sizelimit=$(((DISK_MIB - 1) * 1048576)),noatime" disk.raw root

tar -xf "$PACKAGES" -C root --numeric-owner
cp -R --no-preserve=ownership overlay/. root/

mount -t proc proc root/proc
mount -t sysfs sysfs root/sys
mount --bind /dev root/dev
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 EMULATED="$EMULATED" MASK_AGENT="$MASK_AGENT" \
	chroot root /bin/sh -eu < customize.sh
umount root/proc root/sys root/dev

mkdir -p root/boot/extlinux
cat > root/boot/extlinux/extlinux.conf <<END
DEFAULT linux
PROMPT 0
LABEL linux
  LINUX /vmlinuz
  INITRD /initrd.img
  APPEND $CMDLINE
END
extlinux --install root/boot/extlinux >/dev/null 2>&1
dd if=/usr/lib/EXTLINUX/mbr.bin of=disk.raw bs=440 count=1 conv=notrunc status=none

fstrim root
umount root
qemu-img convert -f raw -O qcow2 -c -o compression_type=zstd disk.raw "$OUT"
