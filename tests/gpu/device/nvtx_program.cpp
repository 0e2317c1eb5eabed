// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Says a few things to NVTX, with the real header; nvtx_tool.cpp is the tool that may be there.
#include <cohort/device/nvtx.hpp>

#include <cstdio>

#if !COHORT_NVTX
#error "the toolkit has NVTX, so it is to be used"
#endif

int main() {
  namespace tools = cohort::tools;
  const tools::range before(tools::category::verb, tools::literal("nobody has looked yet"));
  cohort::device::attach_tools();
  cohort::device::attach_tools();  // once is enough
  {
    tools::range verb(tools::category::verb, tools::literal("all_reduce"), 64);
    tools::range moved(std::move(verb));
    const tools::range named(tools::category::operation, {"gradient", false});
    moved.end();
    moved.end();
    tools::mark(tools::category::event, tools::literal("step"));
  }
  std::printf("%s\n", tools::watched() ? "a tool" : "no tool");
}
