#!/bin/sh
# deploy/packages/build.sh deb|rpm [FOLDER]: builds the packages logshipper and logshipper-slurm-RELEASE into FOLDER (dist).
# deb: for the Debian or Ubuntu that it runs on, and each Slurm whose headers are below a folder of SLURM_INCLUDE
# (/usr/include; a list, with blanks between). rpm: for Enterprise Linux
# (TARGET=el8, el9, el10 or all; el9), without a running one; of the plugin a source RPM.
# Needs .venv (`make` makes it), the target's Python, and dpkg-deb, gcc, make and Slurm's headers, or rpmbuild.
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
out=${2-dist}
machine=$(uname -m)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

# the Python that this distribution has, or offers where its own is too old; the package depends on it
python_here() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        "/usr/bin/$name" -c 'import sys
sys.exit(sys.version_info < (3, 11) or print("%d.%d" % sys.version_info[:2]))' 2>/dev/null && return
    done
    die "there is no Python 3.11 or newer in /usr/bin, on which the package would depend" \
        "Debian, Ubuntu: apt install python3-venv; Ubuntu 22.04: apt install python3.11-venv"
}

# deb12, ubuntu24.04: a part of the version, so that the package of the distribution's next release is the newer one
distribution() (
    . /etc/os-release
    case $ID in
        # testing has no number there
        debian) printf 'deb%s' "${VERSION_ID-$(dpkg-query -W -f '${Version}' base-files | sed 's/[^0-9].*//')}" ;;
        ubuntu) printf 'ubuntu%s' "$VERSION_ID" ;;
        *) die "this is $ID: TARGET=deb12, ubuntu24.04 or the like says which Debian or Ubuntu it is like" ;;
    esac
)

# number of a release of Slurm's headers: 0x160508 is 22.05.8; before 21.08 slurm.h says so
slurm_of() {
    [ -r "$1/slurm/spank.h" ] ||
        die "there are no headers of Slurm in $1/slurm; Debian: apt install libslurm-dev (SLURM_INCLUDE= names another place)"
    number=$(cat "$1/slurm/slurm.h" "$1/slurm/slurm_version.h" 2>/dev/null |
        sed -n 's/^#define SLURM_VERSION_NUMBER 0x\(..\)\(..\).*/0x\1 0x\2/p')
    [ -n "$number" ] || die "the headers in $1/slurm don't say which release they are of"
    printf '%d.%02d' "${number% *}" "${number#* }"
}

slurm=
case $kind in
    deb)
        need dpkg-deb dpkg
        need gcc gcc
        need make make
        echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 ||
            die "gcc finds no headers of the C library; Debian: apt install libc6-dev"
        includes=${SLURM_INCLUDE-/usr/include}
        for headers in $includes; do slurm_of "$headers" >/dev/null; done
        target=${TARGET-$(distribution)}
        python=$(python_here)
        libc_limit=$(getconf GNU_LIBC_VERSION | sed 's/.*\.//')
        suffix=$RELEASE+$target
        ;;
    rpm)
        need rpmbuild rpm
        target=${TARGET-el9}
        case $target in
            all)
                for target in el8 el9 el10; do TARGET=$target "$here/build.sh" rpm "$out"; done
                exit
                ;;
            el8) python=3.11 libc_limit=28 ;;
            el9) python=3.11 libc_limit=34 ;;
            el10) python=3.12 libc_limit=39 ;;
            *) die "TARGET=$target: there are el8, el9, el10 and all" ;;
        esac
        suffix=$RELEASE.$target
        ;;
    *) die "usage: deploy/packages/build.sh deb|rpm [FOLDER]" ;;
esac

compiler= # of byte code: only a Python of the same release makes what that one loads
for candidate in "/usr/bin/python$python" "$(command -v "python$python" || :)" "$PY"; do
    if [ -z "$compiler" ] && [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$python" ]; then
        compiler=$candidate
    fi
done
[ -n "$compiler" ] || die "byte code for $target needs Python $python, and no python$python that runs is in /usr/bin or on the PATH" \
    "3.11 is in Debian 12 (apt install python3.11), 3.12 in Ubuntu 24.04; pyenv has all: PATH=~/.pyenv/versions/$python.X/bin:\$PATH"

mkdir -p "$out"
out=$(cd "$out" && pwd)

# of a clone the last commit's time, of an unpacked archive its files'
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Steps are chained by &&: what `step` runs goes on after a failure, whatever `set -e` says.

# what is on the index for the target's Python and C library, whatever Python pip runs by
get_wheels() {
    platforms="--platform manylinux2014_$machine"
    for minor in $(seq "$libc_limit" -1 17); do platforms="$platforms --platform manylinux_2_${minor}_$machine"; done
    if [ -n "${WHEELS-}" ]; then download --no-index --find-links "$WHEELS" && return; fi
    download && { [ -z "${WHEELS-}" ] || { mkdir -p "$WHEELS" && cp "$scratch/wheels"/*.whl "$WHEELS"; }; }
}

download() {
    # shellcheck disable=SC2086  # a list
    "$PY" -m pip download --quiet --no-input --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
        $platforms --implementation cp --python-version "$python" --abi "cp$(echo "$python" | tr -d .)" --abi abi3 --abi none \
        --dest "$scratch/wheels" "$@" -r requirements/runtime.lock
}

# from a copy: setuptools leaves folders next to its sources
make_wheel() {
    mkdir "$scratch/source" &&
        cp -R pyproject.toml README.md LICENSE logshipper ingest observe grafana "$scratch/source" &&
        find "$scratch/source" -name __pycache__ -prune -exec rm -rf {} + &&
        "$PY" -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$scratch/wheels" "$scratch/source"
}

lay_out() {
    "$PY" "$here/tree.py" "$kind" "$python" "$scratch/wheels" "$scratch/tree" &&
        "$PY" -m docs.tools.manual "$scratch/tree/usr/share/man/man1"
}

# For users, who can't write it. Not by times, which packages change; a source that is edited in place has no effect.
compile_python() {
    PYTHONHASHSEED=0 "$compiler" -s -P -m compileall -q --invalidation-mode unchecked-hash \
        -s "$scratch/tree" -p / "$scratch/tree/opt/logshipper/lib/python$python/site-packages"
}

# build_plugin HEADERS: into a tree of its own
build_plugin() {
    slurm=$(slurm_of "$1") || return
    plugins=/usr/lib/$multiarch/logshipper/slurm-$slurm
    tree=$scratch/slurm-$slurm
    rm -rf "$scratch/spank" &&
        cp -R deploy/slurm/spank "$scratch/spank" &&
        rm -rf "$scratch/spank/build" &&
        make -C "$scratch/spank" SLURM_INCLUDE="${1#/usr/include}" \
            CC="${CC-gcc} -ffile-prefix-map=$scratch/spank=/usr/src/logshipper" \
            install DESTDIR="$tree" PLUGINS="$plugins" &&
        strip --strip-unneeded "$tree$plugins"/logshipper* &&
        install -D -m 0644 "$here/copyright" "$tree/usr/share/doc/logshipper-slurm-$slurm/copyright"
}

# the newest symbol version of the C library that ELF files below a folder ask for
libc_of() {
    find "$1" -type f \( -name '*.so' -o -name '*.so.*' -o -name logshipper-keeper \) -exec objdump -T {} + |
        sed -n 's/.*(\{0,1\}GLIBC_\([0-9][0-9.]*\).*/\1/p' | sort -Vu | tail -n 1
}

set_times() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@RELEASE@|$suffix|g" -e "s|@ARCH@|${arch-}|g" -e "s|@LIBC@|${libc-}|g" \
        -e "s|@SIZE@|${size-}|g" -e "s|@SLURM@|$slurm|g" -e "s|@MULTIARCH@|${multiarch-}|g" -e "s|@PYTHON@|$python|g" \
        -e "s|@DATE@|$(date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')|g" "$1"
}

# make_deb NAME TREE CONTROL: folder of control files
make_deb() {
    libc=$(libc_of "$2") && [ -n "$libc" ] || return
    add_changelog "$1" "$2" || return
    size=$(find "$2" -type f -printf '%s\n' | awk '{ s += int(($1 + 1023) / 1024) } END { print s }')
    (cd "$2" && find . -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$scratch/md5sums" &&
        mkdir "$2/DEBIAN" && mv "$scratch/md5sums" "$2/DEBIAN" || return
    for file in "$3"/*; do
        fill "$file" >"$2/DEBIAN/${file##*/}" || return
        case ${file##*/} in postinst | prerm | postrm) chmod 755 "$2/DEBIAN/${file##*/}" || return ;; esac
    done
    # one thread, whatever this machine has: the same bytes; Ubuntu 22.04's dpkg-deb has no such option
    threads=$(dpkg-deb --help | sed -n 's/.*\(--threads-max=\)<.*/\11/p')
    set_times "$2" &&
        dpkg-deb --root-owner-group -Zxz -z1 $threads --build "$2" "$out/$1_$version-${suffix}_$arch.deb"
}

# add_changelog NAME TREE: the one that Debian's tools look for
add_changelog() {
    printf '%s (%s) unstable; urgency=medium\n\n  * %s\n\n -- %s  %s\n' "$1" "$version-$suffix" \
        'What changed in logshipper: /usr/share/doc/logshipper/CHANGELOG.md' \
        "$(sed -n 's/^Maintainer: //p' "$here/deb/logshipper/control")" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$2/usr/share/doc/$1/changelog.Debian.gz"
}

build_debs() {
    install -D -m 0644 "$here/deb/lintian-overrides" "$scratch/tree/usr/share/lintian/overrides/logshipper" &&
        make_deb logshipper "$scratch/tree" "$here/deb/logshipper" || return
    for tree in "$scratch"/slurm-*; do
        slurm=${tree##*-}
        make_deb "logshipper-slurm-$slurm" "$tree" "$here/deb/logshipper-slurm" || return
    done
}

# run_rpmbuild MODE NAME RELEASE: the spec's folders are all in the scratch folder, and nothing of ~/.rpmmacros counts
run_rpmbuild() {
    spec=$scratch/rpm/SPECS/$2.spec
    suffix=$3 fill "$here/rpm/$2.spec" >"$spec" && touch -d "@$SOURCE_DATE_EPOCH" "$spec" &&
        HOME=$scratch rpmbuild "$1" --nodeps --target "$machine-linux" \
            --define "_topdir $scratch/rpm" --define "_rpmdir $out" --define "_srcrpmdir $out" \
            --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
            --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
            --define 'source_date_epoch_from_changelog 0' --define 'clamp_mtime_to_source_date_epoch 1' \
            --define '_build_id_links none' --undefine dist "$spec"
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
    mkdir -p "$scratch/rpm/SPECS" "$sources" "$scratch/$source" "$scratch/tree/usr/lib64/logshipper" &&
        tar_sorted "$sources/logshipper-tree.tar" "$scratch/tree" . &&
        cp -R deploy/slurm/spank LICENSE "$scratch/$source" &&
        rm -rf "$scratch/$source/spank/build" &&
        chmod -R u=rwX,go=rX "$scratch/$source" &&
        tar_sorted "$sources/$source.tar.gz" "$scratch" "$source" -I 'gzip -n' &&
        run_rpmbuild -bb logshipper "$suffix" && run_rpmbuild -bs logshipper-slurm "$RELEASE"
}

if [ "$kind" = deb ]; then
    arch=$(dpkg --print-architecture)
    multiarch=$(gcc -print-multiarch)
fi
step "Getting the wheels of what the package bundles (hashes checked)" get_wheels
step "Building logshipper's own" make_wheel
step "Laying out /opt/logshipper" lay_out
step "Compiling it for Python $python by $compiler" compile_python
if [ "$kind" = deb ]; then
    for headers in $includes; do step "Building the plugin for Slurm $(slurm_of "$headers")" build_plugin "$headers"; done
fi
step "Building the ${kind}s for $target" "build_${kind}s"
ls "$out"/*"$version"*."$kind"
