// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Fuzz target of the messages: bytes are decoded and encoded again, and given to nodes in the
// middle of a job, as a message of their parent and of their child. What is not a message must be
// a protocol_error and nothing else. Built with clang; libFuzzer's options are the program's:
//
//   protocol_fuzz_codec -max_total_time=600 tests/protocol/corpus

#include "protocol/codec_support.hpp"
#include "protocol/fake_job.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace {

using namespace protocol_test;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// Four ranks with cached names, new names, a message between two, a join and pending withdrawals.
fake_job& job() {
  static fake_job* const made = [] {
    auto* fresh = new fake_job(4, 2);
    fresh->submit_all("a");
    fresh->submit_all("b");
    fresh->settle();
    fresh->submit(2, "a");
    fresh->submit(0, "new");
    fresh->submit(3, "a", sum_of(9));
    signature pair = sum_of(4);
    pair.kind = op_kind::message;
    pair.root = 1;
    pair.detail = 3;
    fresh->submit(1, message_name(1, 3, "pair"), pair);
    fresh->node_of(1).request_report();
    return fresh;
  }();
  return *made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> message(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto once = protocol_codec::copy_of(message);
    require(protocol_codec::copy_of(once) == once, "decoding and encoding do not settle");
  } catch (const protocol_error&) {
  }
  const auto give = [&](int to, int from) {
    node victim = job().node_of(to);
    try {
      victim.receive(from, message);
      bytes out;
      for (int other = 0; other < 4; ++other) static_cast<void>(victim.take_message(other, out));
      victim.clear_actions();
    } catch (const protocol_error&) {
    }
  };
  give(0, 1);
  give(1, 2);
  give(1, 0);
  return 0;
}
