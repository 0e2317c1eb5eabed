# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DCOMPILER_ID=GNU -DINCLUDES="a;b" -DSOURCE=wrong_calls.cpp -P run.cmake
#
# Compiles SOURCE once. Each line `// expect: text` stands before one wrong call, which goes on to
# the next such line: what the compiler says of these lines must hold the text, and what g++ prints
# of them must fit into 15 lines, because a wrong call in a coroutine easily prints hundreds. It
# must say nothing of other lines.
cmake_minimum_required(VERSION 3.25)
set(limit 15)

# Signs that CMake's lists take for their own become others.
function(to_lines variable text)
  string(REPLACE ";" "," text "${text}")
  string(REPLACE "[" "(" text "${text}")
  string(REPLACE "]" ")" text "${text}")
  string(REPLACE "\\" "/" text "${text}")
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ";" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# The wrong calls: expected_N is the text of the one that begins in line begin_N.
file(READ "${SOURCE}" text)
to_lines(lines "${text}")
set(calls 0)
set(number 0)
foreach(line IN LISTS lines)
  math(EXPR number "${number} + 1")
  if(line MATCHES "^ *// expect: (.+)$")
    set(expected_${calls} "${CMAKE_MATCH_1}")
    set(begin_${calls} ${number})
    set(said_${calls} "")
    set(length_${calls} 0)
    math(EXPR calls "${calls} + 1")
  endif()
endforeach()
if(calls EQUAL 0)
  message(FATAL_ERROR "${SOURCE} has no line '// expect: text'")
endif()

set(ENV{LC_ALL} C)  # plain quotes and no translation in the messages
set(no_limit "")
if(COMPILER_ID MATCHES "Clang")
  set(no_limit -ferror-limit=0)
endif()
list(REMOVE_ITEM INCLUDES "")
list(TRANSFORM INCLUDES PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 ${DEFINES} -fsyntax-only -fdiagnostics-color=never ${no_limit} ${INCLUDES}
    "${SOURCE}"
  RESULT_VARIABLE status
  ERROR_VARIABLE output
  OUTPUT_VARIABLE output)
message("${output}")
if(status EQUAL 0)
  message(FATAL_ERROR "it compiles, and must not")
endif()

# Gives one error, with what the compiler says around it, to the wrong call that it is about: the
# one of the last line of SOURCE that it names.
cmake_path(GET SOURCE FILENAME name)
string(REPLACE "." "[.]" name "${name}")
macro(assign)
  string(REGEX MATCHALL "${name}:[0-9]+" places "${block}")
  set(owner -1)
  foreach(place IN LISTS places)
    string(REGEX REPLACE ".*:" "" place "${place}")
    set(call 0)
    while(call LESS calls AND begin_${call} LESS_EQUAL place)
      set(owner ${call})
      math(EXPR call "${call} + 1")
    endwhile()
  endforeach()
  if(owner EQUAL -1)
    message(FATAL_ERROR "an error that is about no wrong call:\n${block}")
  endif()
  string(APPEND said_${owner} "${block}")
  math(EXPR length_${owner} "${length_${owner}} + ${length}")
endmacro()

# g++ tells where it was before each error, clang afterwards.
set(before "^(In file included from |[^ ]+: (In|At) |[^ ]+:[0-9]+:[0-9]+: error: )")
if(COMPILER_ID MATCHES "Clang")
  set(before ": error: ")
endif()
string(REGEX REPLACE "\n\n" "\n" output "${output}")
to_lines(lines "${output}")
set(block "")
set(length 0)
set(has_error FALSE)
foreach(line IN LISTS lines)
  if(line MATCHES "${before}" AND has_error)
    assign()
    set(block "")
    set(length 0)
    set(has_error FALSE)
  endif()
  string(APPEND block "${line}\n")
  math(EXPR length "${length} + 1")
  if(line MATCHES ": error: ")
    set(has_error TRUE)
  endif()
endforeach()
if(has_error)
  assign()
endif()

set(failures "")
math(EXPR last "${calls} - 1")
foreach(call RANGE ${last})
  string(FIND "${said_${call}}" "${expected_${call}}" found)
  if(found EQUAL -1)
    string(APPEND failures "line ${begin_${call}}: the compiler does not say: ${expected_${call}}\n")
  endif()
  if(COMPILER_ID STREQUAL "GNU" AND length_${call} GREATER limit)
    string(APPEND failures "line ${begin_${call}}: the message has ${length_${call}} lines, at most \
${limit} are read by anybody\n")
  endif()
endforeach()
if(failures)
  message(FATAL_ERROR "${failures}")
endif()
message("${calls} wrong calls, each with its message")
