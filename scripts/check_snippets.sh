#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_snippets.sh [MPICXX]: compiles every C++ sample of the documentation.
#
# Samples are the ```cpp blocks of README.md and docs/, and the \code ... \endcode blocks of
# headers. A sample with `int main(` is a program. Any other is the body of a coroutine that is given
# `io` (an asio::io_context&) and `world` (a cohort::communicator). A line before the block may say
# otherwise:
#
#   <!-- snippet: declarations -->   functions and types, which later samples of the page may use
#   <!-- snippet: continues -->      goes on where the sample before it ended
#   <!-- snippet: skip -->           is not compiled (another library, a shell session)
#
# A page with the line <!-- snippets: cuda -->, and a header of the layers device and nccl, uses these
# layers. Its samples are compiled with the declarations of the test doubles (tests/support/fake_gpu),
# which needs no toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
export scratch=build/snippets
rm -rf "$scratch"
mkdir -p "$scratch"

# Writes PAGE.cpp, and PAGE.LINE.cpp for each program; #line makes the compiler name the page.
extract() {
  local cuda
  cuda=$({ echo "$1"; cat "$1"; } | grep -cE '^<!-- snippets: cuda -->|^include/cohort/(device|nccl)/' || true)
  awk -v page="$1" -v cuda="$cuda" -v name="$scratch/$(tr / _ <<<"$1")" '
  BEGIN {
    file = name ".cpp"
    print "#include <cohort/cohort.hpp>\nusing namespace std::chrono_literals;" >file
    if (cuda > 0) print "#include <cohort/gpu.hpp>" >file
  }
  function finish_body() { if (open) print ";\nco_return;\n}" >file; open = 0 }
  function begin_block() {
    text = ""; start = NR + 1; inside = 1
  }
  function end_block() {
    inside = 0
    line = "#line " start " \"" page "\"\n"
    if (mode == "skip") { mode = ""; return }
    if (text ~ /int main\(/) {
      program = name "." start ".cpp"
      print line text >program
      close(program)
    } else if (mode == "declarations") {
      finish_body()
      print line text >file
    } else {
      if (mode != "continues") {
        finish_body()
        print "asio::awaitable<void> sample_" start "([[maybe_unused]] asio::io_context& io, " \
          "[[maybe_unused]] cohort::communicator world) {" >file
        open = 1
      }
      print line text >file
    }
    mode = ""
  }
  /^<!-- snippet: [a-z]+ -->/ { mode = $3; next }
  !inside && (/^```cpp/ || /^ *\/\/\/ *\\code/) { begin_block(); next }
  inside && (/^```/ || /^ *\/\/\/ *\\endcode/) { end_block(); next }
  inside { body = $0; sub(/^ *\/\/\/ ?/, "", body); text = text body "\n" }
  END { finish_body() }' "$1"
}

# As for who links cohort::compiled, which takes half the time: the declarations are the same.
# Because of #line the compiler takes a page for a header, where lambdas in a coroutine's frame would
# be suspicious. What the samples of a page get is compiled once; a program includes what it needs.
export flags="-std=c++20 -DCOHORT_SEPARATE_COMPILATION -Wall -Wextra -Werror -Wno-unused -Wno-subobject-linkage"
export double=tests/support/fake_gpu/include
compile() {
  local first=()
  case $1 in
    *.[0-9]*.cpp) ;;
    *) first=("-I$scratch/first") ;;
  esac
  # shellcheck disable=SC2086  # words
  "$mpicxx" $flags -fsyntax-only "${first[@]}" -Iinclude -isystem "$double" -x c++ "$1"
}
export -f compile

{ grep -rlE '^```cpp' README.md docs --include=*.md || true
  grep -rlE '^ *///.*\\code' include || true; } | while read -r page; do extract "$page"; done

mkdir -p "$scratch/first/cohort/cohort.hpp.gch"
echo '#include <cohort/cohort.hpp>' >"$scratch/first.hpp"
# shellcheck disable=SC2086  # words
"$mpicxx" $flags -Iinclude -isystem "$double" -c -x c++-header "$scratch/first.hpp" \
  -o "$scratch/first/cohort/cohort.hpp.gch/for_samples"

# Pages with nothing but programs leave a file without a sample.
# shellcheck disable=SC2016  # $0 is for the inner shell
find "$scratch" -name '*.cpp' -print0 | xargs -0 -r grep -lE '^#line' |
  xargs -r -n 1 -P "$(nproc)" bash -c 'compile "$0" || { echo "does not compile: $0" >&2; exit 1; }'
echo "$(cat "$scratch"/*.cpp 2>/dev/null | grep -c '^#line' || true) samples compile"
