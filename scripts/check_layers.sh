#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_layers.sh [INCLUDE_DIR]: reads every header and says which rule of the house it breaks.
#
#   1. A layer includes only what the table of docs/design/layers.md lets it, and what those may include.
#   2. <layer>/detail/ is included from its own layer only; nobody includes cohort/cohort.hpp.
#   3. Asio stays out of core (but core/asio.hpp) and mpi; <asio.hpp> as a whole stays out of all.
#   4. One place each: macros, the version of Asio, <mpi.h>, CUDA's headers, MPI_Testsome. The
#      executor of a handler is not asked for without a fallback.
#   5. A header starts with the licence, then #pragma once and one \file sentence.
#   6. Rooms, the folders of a layer, are as docs/design/layers.md has them in its tables: which there
#      are, their lines to a fifth, and what of its layer each includes. detail/ holds at most a fifth of
#      such a layer.
#
# Exits with 1 if anything is wrong. It needs a POSIX shell and awk, and runs as ctest tools.layers.
root=${1:-$(dirname "$0")/../include}
page=$(dirname "$0")/../docs/design/layers.md

find "$root/cohort" \( -name '*.hpp' -o -name '*.ipp' \) | LC_ALL=C sort | awk -v root="$root/" -v page="$page" '
BEGIN {
  read_page()
  for (layer in below) close_over(layer, layer)
  # Headers of a layer that may include more than the others.
  more["cohort/device/completion.hpp", "progress"] = 1
  more["cohort/collectives.hpp", "shm"] = 1
  more["cohort/coordinator.hpp", "shm"] = 1
  more["cohort/graph.hpp", "shm"] = 1
  more["cohort/rendezvous.hpp", "shm"] = 1
  more["cohort/device/detail/completion.ipp", "progress"] = 1
  more["cohort/device/make_pinned.hpp", "progress"] = 1
}

# Follows the table from `layer` downwards, for may[top, *].
function close_over(top, layer,    names, count, i) {
  may[top, layer] = 1
  count = split(below[layer], names, " ")
  for (i = 1; i <= count; ++i) close_over(top, names[i])
}

# Layers: lines "layer  ← layer, layer  text" of the first block of the page. Rooms: rows
# "| `layer/room` | lines | text | `layer/room`, ... |" of the section on rooms.
function read_page(    line, cells, name, names, count, i, block, inside) {
  while ((getline line < page) > 0) {
    if (line ~ /^```/) ++block
    else if (block == 1) {
      count = split(line, names, / +/)
      below[names[1]] = ""
      for (i = 3; names[2] == "←" && i <= count; ++i) {
        name = names[i]
        below[names[1]] = below[names[1]] " " substr(name, 1, length(name) - (name ~ /,$/))
        if (name !~ /,$/) break
      }
    }
    if (line ~ /^## /) inside = line == "## Rooms"
    if (!inside || line !~ /^[|] `/) continue
    gsub(/[` ]/, "", line)
    split(line, cells, "|")
    wanted_lines[cells[2]] = cells[3]
    name = cells[2]; sub(/\/.*/, "", name); has_rooms[name] = 1; ++tables
    count = split(cells[5], names, ",")
    for (i = 1; i <= count; ++i) wanted_arrow[cells[2], names[i]] = 1
  }
  close(page)
}

# "cohort/comm/communicator.hpp" is in the room comm, "cohort/nccl/life/making.ipp" in nccl/life. Gates and
# src.hpp are in none.
function room_of(path,    parts, count) {
  count = split(path, parts, "/")
  if (count < 3 || parts[3] == "src.hpp") return ""
  return count == 3 ? parts[2] : parts[2] "/" parts[3]
}

function check_rooms(    name, layer, both) {
  for (name in room_lines) {
    layer = name; sub(/\/.*/, "", layer)
    header = page; number = 0
    if (!(layer in has_rooms)) {
      if (name ~ /\// && name !~ /\/detail$/) complain("the room " name " has no row")
      continue
    }
    if (name ~ /\/detail$/) {
      if (room_lines[name] * 5 > layer_lines[layer])
        complain(name " has " room_lines[name] " of the " layer_lines[layer] " lines of its layer, over a fifth")
    }
    if (!(name in wanted_lines)) complain("the room " name " has no row")
    else if (room_lines[name] > wanted_lines[name] * 1.2 || room_lines[name] < wanted_lines[name] * 0.8)
      complain(name " has " room_lines[name] " lines, not " wanted_lines[name])
  }
  for (name in wanted_lines) if (!(name in room_lines)) complain("there is no room " name)
  for (both in arrow) {
    split(both, ends, SUBSEP)
    if (!(both in wanted_arrow)) complain(ends[1] " includes " ends[2] " (" arrow[both] "), which its row does not say")
  }
  for (both in wanted_arrow) {
    split(both, ends, SUBSEP)
    if (!(both in arrow)) complain(ends[1] " includes nothing of " ends[2])
  }
}

function complain(text) { print header ":" number ": " text; wrong = 1 }

# What is left of a line without its comments; `in_comment` carries /* from line to line.
function code_of(line,    at, rest) {
  if (in_comment) {
    at = index(line, "*/")
    if (!at) return ""
    line = substr(line, at + 2)
    in_comment = 0
  }
  sub(/\/\/.*/, "", line)
  while ((at = index(line, "/*")) > 0) {
    rest = substr(line, at + 2)
    line = substr(line, 1, at - 1)
    at = index(rest, "*/")
    if (!at) { in_comment = 1; return line }
    line = line substr(rest, at + 2)
  }
  return line
}

# "cohort/comm/communicator.hpp" and the gate "cohort/comm.hpp" belong to comm.
function layer_of(path,    parts) {
  split(path, parts, "/")
  sub(/[.]hpp$/, "", parts[2])
  return parts[2]
}

function check_include(path, quoted,    to) {
  if (quoted && path !~ /^cohort\//) complain("headers are included as \"cohort/...\"")
  if (path == "mpi.h" && header != "cohort/mpi/native.hpp")
    complain("<mpi.h> is included by cohort/mpi/native.hpp alone")
  if (path ~ /^cuda/ && header != "cohort/device/native.hpp")
    complain("CUDA is included by cohort/device/native.hpp alone")
  if (path ~ /^nvtx/ && header != "cohort/device/nvtx.hpp")
    complain("NVTX is included by cohort/device/nvtx.hpp alone")
  if (path ~ /^nccl/ && header != "cohort/nccl/native.hpp")
    complain("NCCL is included by cohort/nccl/native.hpp alone")
  if (path == "asio.hpp")
    complain("<asio.hpp> costs a second of compile time; include what is needed")
  if (path ~ /^asio\// || path == "cohort/core/asio.hpp")
    if ((layer == "core" && header != "cohort/core/asio.hpp") || layer == "mpi")
      complain(layer " does not know Asio")
  if (path !~ /^cohort\//) return
  if (path == "cohort/cohort.hpp") { complain("the umbrella is for users"); return }
  if (layer == "src") {
    if (path !~ /^cohort\/[a-z0-9]+\/src[.]hpp$/) complain("cohort/src.hpp includes those of layers only")
    return
  }
  if (path ~ /\/src[.]hpp$/) { complain("a src.hpp is for files that compile bodies"); return }
  to = layer_of(path)
  if (layer == "cohort" || layer == "gpu") {
    if (path != "cohort/" to ".hpp") complain("the umbrella includes gate headers only")
    return
  }
  if (!((layer, to) in may) && !((header, to) in more)) complain(layer " does not include " to " (" path ")")
  if (path ~ /\/detail\// && to != layer) complain(path " is a detail of " to)
  if (to == layer && (layer in has_rooms) && room != "" && room_of(path) != room) arrow[room, room_of(path)] = header
}

{
  file = $0
  header = substr(file, length(root) + 1)
  layer = layer_of(header)
  room = room_of(header)
  number = 0; in_comment = 0; once = 0; described = 0; first = ""; second = ""
  if (layer != "cohort" && layer != "gpu" && layer != "src" && !(layer in below)) complain("the layer " layer " is not in the table")
  while ((getline line < file) > 0) {
    ++number
    if (number == 1) first = line
    if (number == 2) second = line
    if (line ~ /^#pragma once/) once = 1
    if (line ~ /^\/\/\/.*\\file/) described = 1
    code = code_of(line)
    if (code ~ /^[ \t]*#[ \t]*include/) {
      if (match(code, /["<][^">]+[">]/)) 
        check_include(substr(code, RSTART + 1, RLENGTH - 2), substr(code, RSTART, 1) == "\"")
      continue
    }
    if (code ~ /^[ \t]*#[ \t]*define/ && header !~ /^cohort\/core\/(asio|config)[.]hpp$/)
      if (!(header == "cohort/mpi/native.hpp" && code ~ /(OMPI|MPICH)_SKIP_MPICXX/) &&
          !(header == "cohort/device/native.hpp" && code ~ / COHORT_HAS_CUDA [01]$/) &&
          !(header == "cohort/device/nvtx.hpp" && code ~ / COHORT_NVTX [01]$/) &&
          !(header == "cohort/nccl/native.hpp" && code ~ / COHORT_HAS_NCCL [01]$/) &&
          !(header == "cohort/collectives/bodies/instances.hpp" && code ~ / COHORT_INSTANCE/) &&
          !(header == "cohort/nccl/extra/pack_kernels.hpp" && code ~ / COHORT_PACK_(TABLE|CODE)[(]/))
        complain("macros are defined in core/config.hpp and core/asio.hpp only")
    if (code ~ /ASIO_VERSION/ && header != "cohort/core/asio.hpp")
      complain("only core/asio.hpp knows the version of Asio")
    if (code ~ /get_associated_executor *[(][^,]*[)]/)
      complain("since Asio 1.37 a handler without an executor is called in place: name the fallback, as executor_of of core/asio.hpp does")
    if (code ~ /MPI_Testsome/ && header !~ /^cohort\/comm\/requests\/list[.][hi]pp$/)
      complain("MPI_Testsome is called by comm/requests/list alone")
  }
  close(file)
  if (room != "") { room_lines[room] += number; layer_lines[layer] += number }
  number = 1
  if (first !~ /^\/\/ Copyright \(c\) / || second !~ /^\/\/ SPDX-License-Identifier: BSL-1.0/)
    complain("the two licence lines are missing")
  if (!once && header ~ /[.]hpp$/) complain("#pragma once is missing")
  if (!described) complain("a sentence after /// \\file is missing")
  ++headers
}

END {
  if (!headers) { print "no headers below " root; exit 1 }
  if (!tables) { print page " has no tables of rooms"; wrong = 1 }
  check_rooms()
  if (!wrong) print headers " headers keep the rules"
  exit wrong
}'
