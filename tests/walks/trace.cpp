// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What g++ calls where a function begins and where it ends (this file is compiled without
/// that), and the record.

#include "trace.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" char __executable_start;  // the linker's: addresses in the file count from here

namespace {

struct entry {
  const void* function;  // or nothing, of a mark
  const void* thread;    // an address that is its own
  char kind;  // '<' the function begins, '>' it ends, '^' it had begun; 'w', 'i', 'e' a mark
};

constexpr std::size_t most = std::size_t{1} << 24U;
entry entries[most];  // memory that is not written to costs nothing
std::atomic<std::size_t> used{0};
std::atomic<bool> recording{false};

/// The functions that run on this thread, outermost first.
struct call_stack {
  static constexpr std::size_t deepest = 512;
  const void* functions[deepest];
  std::size_t depth;
};
thread_local call_stack stack;

void note(char kind, const void* function) noexcept {
  const std::size_t next = used.fetch_add(1, std::memory_order_relaxed);
  if (next < most) entries[next] = {function, &stack, kind};
}

}  // namespace

void walk::begin(char what) {
  note(what, nullptr);
  for (std::size_t i = 0; i < stack.depth; ++i) note('^', stack.functions[i]);
  recording = true;
}

void walk::end() {
  recording = false;
  note('e', nullptr);
}

void walk::write(int rank) {
  const char* const name = std::getenv("COHORT_WALK");
  if (name == nullptr) return;
  std::FILE* const file = std::fopen((name + ("." + std::to_string(rank))).c_str(), "w");
  if (file == nullptr || used > most) {
    std::fprintf(stderr, "walk: the record is too long, or cannot be written\n");
    std::exit(1);
  }
  const auto number = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  for (std::size_t i = 0; i < used; ++i) {
    const entry& one = entries[i];
    const std::uintptr_t from = one.function == nullptr ? 0 : number(&__executable_start);
    std::fprintf(file, "%c %jx %jx\n", one.kind, std::uintmax_t{number(one.function) - from},
                 std::uintmax_t{number(one.thread)});
  }
  std::fclose(file);
}

extern "C" {
void __cyg_profile_func_enter(void* function, void*) {
  if (stack.depth < call_stack::deepest) stack.functions[stack.depth] = function;
  ++stack.depth;
  if (recording.load(std::memory_order_relaxed)) note('<', function);
}
void __cyg_profile_func_exit(void* function, void*) {
  if (stack.depth > 0) --stack.depth;
  if (recording.load(std::memory_order_relaxed)) note('>', function);
}
}
