#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# mixed_link_test.sh COMPILER ASIO_INCLUDE_DIR: files of one program that are compiled in different
# ways, or with different versions of cohort or Asio or different MPIs, do not link, and the linker
# names the difference. Two alike link.
set -euo pipefail
compiler=$1 asio=$2
include=$(cd "$(dirname "$0")/../../include" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

mkdir -p next/cohort open_mpi mpich next_asio/asio
cp -r "$include/cohort/core" next/cohort
sed -i 's/\(define COHORT_VERSION_PATCH\) .*/\1 77/' next/cohort/core/config.hpp
version=$(sed -n 's/^#define ASIO_VERSION \([0-9]*\).*/\1/p' "$asio/asio/version.hpp")
next=$((version + 1))
printf '#define ASIO_VERSION %s\n' "$next" >next_asio/asio/version.hpp
for family in open_mpi:OPEN_MPI mpich:MPICH_VERSION; do
  printf '#define MPI_VERSION 4\n#define MPI_SUBVERSION 0\n#define %s 1\n' "${family#*:}" \
    >"${family%:*}/mpi.h"
  cat >>"${family%:*}/mpi.h" <<'END'
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
int MPI_Initialized(int*);
int MPI_Finalized(int*);
int MPI_Query_thread(int*);
int MPI_Is_thread_main(int*);
END
done
printf '#include <cohort/core/config.hpp>\n' >version.hpp
printf '#include <cohort/core/asio.hpp>\n' >asio.hpp
printf '#include <cohort/mpi/native.hpp>\n' >mpi.hpp

# object NAME HEADER OPTION...: with a main if the name begins with it.
object() {
  local body='int other() { return 0; }'
  [[ $1 != main* ]] || body='int main() { return 0; }'
  printf '#include "%s.hpp"\n%s\n' "$2" "$body" >"$1.cpp"
  "$compiler" -std=c++20 -O0 -I. "${@:3}" -I"$include" -idirafter "$asio" -pthread -c "$1.cpp" -o "$1.o"
}
# Whether two objects link; says what the linker does not like.
links() { "$compiler" -pthread "$@" -o program 2>errors; }
refused() {
  if links "$1" "$2"; then echo "$1 and $2 link"; exit 1; fi
  grep -q "$3" errors || { echo "not named: $3"; cat errors; exit 1; }
  echo "refused: $3"
}

object main version
object same version
object separate version -DCOHORT_SEPARATE_COMPILATION
object newer version -Inext
links main.o same.o || { cat errors; exit 1; }
refused main.o separate.o 'cohort_files_differ_in_version_or_compilation__this_one_is__.*_separately_compiled'
refused main.o newer.o 'cohort_files_differ_in_version_or_compilation__this_one_is__.*_77_header_only'

# Link-time optimisation makes one file of them; not every linker has clang's.
printf 'int main() { return 0; }\n' >lto.cpp
for lto in -flto "$([[ $("$compiler" --version) != *clang* ]] || echo -flto=thin)"; do
  [ -n "$lto" ] || continue
  "$compiler" "$lto" lto.cpp -o program 2>/dev/null || continue
  object main_lto version "$lto"
  object same_lto version "$lto"
  links main_lto.o same_lto.o -O2 "$lto" || { cat errors; exit 1; }
  ./program
done

object main_mpi mpi -Iopen_mpi
object other_mpi mpi -Impich
refused main_mpi.o other_mpi.o 'cohort_files_differ_in_mpi__this_one_is__mpich'

object main_asio asio
object other_asio asio -Inext_asio
refused main_asio.o other_asio.o "cohort_files_differ_in_asio__this_one_is__$next"
