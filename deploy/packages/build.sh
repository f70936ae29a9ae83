#!/bin/sh
# deploy/packages/build.sh deb|rpm [FOLDER]: builds the packages logshipper and logshipper-slurm into FOLDER (dist).
# The RPMs go without a running Enterprise Linux: the second one is a source RPM, too, for the Slurm of another machine.
# Needs .venv (`make` makes it), Python 3.11, gcc, make, Slurm's headers, and dpkg-deb or rpmbuild.
#
# The same commit gives the same bytes: times are the last commit's (SOURCE_DATE_EPOCH), owners root, and no path of
# this machine gets in. RELEASE=2 is for a package that is built again from the same version.
# WHEELS=FOLDER keeps the downloaded wheels there, for the next time; hashes are checked either way.
set -eu
umask 022
LC_ALL=C.UTF-8 TZ=UTC
export LC_ALL TZ
cd "$(dirname "$0")/../.."
. requirements/step.sh
root=$(pwd)
here=$root/deploy/packages
PY=$root/.venv/bin/python
RELEASE=${RELEASE-1}

die() { printf 'build.sh: %s\n' "$@" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || die "$1 isn't installed; Debian: apt install $2"; }

kind=${1-}
case $kind in
    deb) need dpkg-deb dpkg ;;
    rpm) need rpmbuild rpm ;;
    *) die "usage: deploy/packages/build.sh deb|rpm [FOLDER]" ;;
esac
need gcc gcc
need make make
out=${2-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
machine=$(uname -m)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

headers=${SLURM_INCLUDE-/usr/include}
[ -r "$headers/slurm/spank.h" ] ||
    die "there are no headers of Slurm in $headers/slurm; Debian: apt install libslurm-dev (SLURM_INCLUDE= names another place)"
# 0x160508 is 22.05.8; before 21.08 slurm.h says so
number=$(cat "$headers/slurm/slurm.h" "$headers/slurm/slurm_version.h" 2>/dev/null |
    sed -n 's/^#define SLURM_VERSION_NUMBER 0x\(..\)\(..\).*/0x\1 0x\2/p')
[ -n "$number" ] || die "the headers in $headers/slurm don't say which release they are of"
slurm=$(printf '%d.%02d' "${number% *}" "${number#* }")
# the release after it, as packages compare: 22.05 is followed by 22.06
slurm_next=$(printf '%d.%02d' "${number% *}" $((${number#* } + 1)))

python=
for candidate in /usr/bin/python3.11 "$(command -v python3.11 || :)" "$PY"; do
    if [ -z "$python" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        python=$candidate
    fi
done
[ -n "$python" ] || die "byte code for Python 3.11 needs one; Debian 12: apt install python3.11"

# of a clone the last commit's time, of an unpacked archive its files'
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Steps are chained by &&: what `step` runs goes on after a failure, whatever `set -e` says.

# what is on the index for Python 3.11 and a C library as old as Enterprise Linux 9's, whatever Python pip runs by
get_wheels() {
    platforms="--platform manylinux2014_$machine"
    for minor in 34 33 32 31 30 29 28 27 26 25 24 23 22 21 20 19 18 17; do
        platforms="$platforms --platform manylinux_2_${minor}_$machine"
    done
    if [ -n "${WHEELS-}" ]; then download --no-index --find-links "$WHEELS" && return; fi
    download && { [ -z "${WHEELS-}" ] || { mkdir -p "$WHEELS" && cp "$scratch/wheels"/*.whl "$WHEELS"; }; }
}

download() {
    # shellcheck disable=SC2086  # a list
    "$PY" -m pip download --quiet --no-input --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
        $platforms --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
        --dest "$scratch/wheels" "$@" -r requirements/runtime.lock
}

# from a copy: setuptools leaves folders next to its sources
make_wheel() {
    mkdir "$scratch/source" &&
        cp -R pyproject.toml README.md LICENSE logshipper ingest observe grafana "$scratch/source" &&
        find "$scratch/source" -name __pycache__ -prune -exec rm -rf {} + &&
        "$PY" -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$scratch/wheels" "$scratch/source"
}

lay_out() { "$PY" "$here/tree.py" "$kind" "$scratch/wheels" "$scratch/tree"; }

# For users, who can't write it. Not by times, which packages change; a source that is edited in place has no effect.
compile_python() {
    PYTHONHASHSEED=0 "$python" -s -P -m compileall -q --invalidation-mode unchecked-hash \
        -s "$scratch/tree" -p / "$scratch/tree/opt/logshipper/lib/python3.11/site-packages"
}

build_plugin() {
    cp -R deploy/slurm/spank "$scratch/spank" &&
        rm -rf "$scratch/spank/build" &&
        make -C "$scratch/spank" ${SLURM_INCLUDE:+SLURM_INCLUDE="$SLURM_INCLUDE"} \
            CC="${CC-gcc} -ffile-prefix-map=$scratch/spank=/usr/src/logshipper" \
            install DESTDIR="$scratch/slurm" PLUGINS="$plugins" &&
        strip --strip-unneeded "$scratch/slurm$plugins"/logshipper* &&
        install -D -m 0644 "$here/plugstack.conf" "$scratch/slurm/usr/share/logshipper/plugstack.conf" &&
        install -D -m 0644 LICENSE "$scratch/slurm/usr/share/doc/logshipper-slurm/copyright"
}

# the newest symbol version of the C library that ELF files below a folder ask for
libc_of() {
    find "$1" -type f \( -name '*.so' -o -name '*.so.*' -o -name logshipper-keeper \) -exec objdump -T {} + |
        sed -n 's/.*(\{0,1\}GLIBC_\([0-9][0-9.]*\).*/\1/p' | sort -Vu | tail -n 1
}

set_times() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@RELEASE@|$RELEASE|g" -e "s|@ARCH@|${arch-}|g" -e "s|@LIBC@|${libc-}|g" \
        -e "s|@SIZE@|${size-}|g" -e "s|@SLURM@|$slurm|g" -e "s|@SLURM_NEXT@|$slurm_next|g" -e "s|@PLUGINS@|$plugins|g" "$1"
}

# make_deb NAME TREE
make_deb() {
    libc=$(libc_of "$2") && [ -n "$libc" ] || return
    size=$(find "$2" -type f -printf '%s\n' | awk '{ s += int(($1 + 1023) / 1024) } END { print s }')
    (cd "$2" && find . -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$scratch/md5sums" &&
        mkdir "$2/DEBIAN" && mv "$scratch/md5sums" "$2/DEBIAN" || return
    for file in "$here/deb/$1"/*; do
        fill "$file" >"$2/DEBIAN/${file##*/}" || return
        case ${file##*/} in postinst | prerm | postrm) chmod 755 "$2/DEBIAN/${file##*/}" || return ;; esac
    done
    set_times "$2" &&
        dpkg-deb --root-owner-group -Zxz -z1 --threads-max=1 --build "$2" "$out/$1_$version-${RELEASE}_$arch.deb"
}

build_debs() { make_deb logshipper "$scratch/tree" && make_deb logshipper-slurm "$scratch/slurm"; }

# run_rpmbuild MODE NAME: the spec's folders are all in the scratch folder, and nothing of ~/.rpmmacros counts
run_rpmbuild() {
    spec=$scratch/rpm/SPECS/$2.spec
    fill "$here/rpm/$2.spec" >"$spec" && touch -d "@$SOURCE_DATE_EPOCH" "$spec" &&
        HOME=$scratch rpmbuild "$1" --nodeps --target "$machine-linux" \
            --define "_topdir $scratch/rpm" --define "_rpmdir $out" --define "_srcrpmdir $out" \
            --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
            --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
            --define 'source_date_epoch_from_changelog 0' --define 'clamp_mtime_to_source_date_epoch 1' \
            --define '_build_id_links none' --define "slurm_include $headers" "$spec"
}

# tar_sorted ARCHIVE FOLDER NAME OPTION...: the same bytes for the same files
tar_sorted() {
    archive=$1 folder=$2 name=$3
    shift 3
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu "$@" \
        -cf "$archive" -C "$folder" "$name" && touch -d "@$SOURCE_DATE_EPOCH" "$archive"
}

build_rpms() {
    sources=$scratch/rpm/SOURCES
    source=logshipper-slurm-$version
    mkdir -p "$scratch/rpm/SPECS" "$sources" "$scratch/$source" &&
        tar_sorted "$sources/logshipper-tree.tar" "$scratch/tree" . &&
        cp -R deploy/slurm/spank LICENSE "$here/plugstack.conf" "$scratch/$source" &&
        rm -rf "$scratch/$source/spank/build" &&
        chmod -R u=rwX,go=rX "$scratch/$source" &&
        tar_sorted "$sources/$source.tar.gz" "$scratch" "$source" -I 'gzip -n' &&
        run_rpmbuild -bb logshipper && run_rpmbuild -ba logshipper-slurm
}

if [ "$kind" = deb ]; then
    arch=$(dpkg --print-architecture)
    plugins=/usr/lib/$(gcc -print-multiarch)/slurm-wlm
else
    plugins=/usr/lib64/slurm
fi
step "Getting the wheels of what the package bundles (hashes checked)" get_wheels
step "Building logshipper's own" make_wheel
step "Laying out /opt/logshipper" lay_out
step "Compiling it for Python 3.11" compile_python
[ "$kind" = rpm ] || step "Building the plugin for Slurm $slurm" build_plugin
step "Building the ${kind}s" "build_${kind}s"
ls "$out"/*."$kind"
