# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DCOMPILER_ID=GNU -DINCLUDES="a;b" -DSOURCE=wrong_call.cpp -P run.cmake
#
# Compiles SOURCE, which must fail with the text of its line `// expect: text`. What g++ prints must
# fit into 15 lines, because a wrong call in a coroutine easily prints hundreds.
set(limit 15)

file(STRINGS "${SOURCE}" expected REGEX "^// expect: ")
list(LENGTH expected count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${SOURCE} needs exactly one line '// expect: text', it has ${count}")
endif()
string(REGEX REPLACE "^// expect: " "" expected "${expected}")

set(ENV{LC_ALL} C)  # plain quotes and no translation in the messages
list(TRANSFORM INCLUDES PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -fdiagnostics-color=never ${INCLUDES} "${SOURCE}"
  RESULT_VARIABLE status
  ERROR_VARIABLE output
  OUTPUT_VARIABLE output)
message("${output}")
if(status EQUAL 0)
  message(FATAL_ERROR "it compiles, and must not")
endif()
string(FIND "${output}" "${expected}" found)
if(found EQUAL -1)
  message(FATAL_ERROR "the compiler does not say: ${expected}")
endif()
if(COMPILER_ID STREQUAL "GNU")
  string(REGEX MATCHALL "\n" lines "${output}")
  list(LENGTH lines count)
  if(count GREATER limit)
    message(FATAL_ERROR "the message has ${count} lines, at most ${limit} are read by anybody")
  endif()
endif()
