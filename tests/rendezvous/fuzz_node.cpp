// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Fuzz target of the messages between ranks: bytes are decoded and encoded again, and given to a
// node in the middle of a job as a message of each of its peers. Who sends what is no message is
// lost and nothing else, and every receive must still end exactly once. Built with clang;
// libFuzzer's options are the program's:
//
//   rendezvous_fuzz_node -max_total_time=600 tests/rendezvous/corpus
//
// With --corpus FOLDER it writes messages of a real job there, to begin with.

#include "rendezvous/support.hpp"
#include "support/fuzz_corpus.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

namespace {

using namespace rendezvous_test;
using bytes = std::vector<std::byte>;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

meeting::node_options small() {
  meeting::node_options options;
  options.push_limit = 64;
  options.inline_limit = 128;
  options.largest = 1U << 16U;
  return options;
}

/// Two ranks with receives and values of every kind that wait.
struct scene {
  scene() : job(3, small()) {
    for (auto& one : receives) one = std::make_unique<probe<std::vector<int>>>();
    job.receive(1, key_of(0, 1, "a"), *receives[0]);
    job.receive(1, key_of(0, 1, "a"), *receives[1]);
    job.receive(1, key_of(0, 1, "b", 1), *receives[2]);
    job.receive(2, key_of(2, 1, "c"), *receives[3]);
    job.receive(1, key_of(1, 1, "own"), *receives[4]);
    job.receive(1, key_of(0, 1, "gone"), *receives[5]);
    job.send(1, key_of(1, 0, "small"), 5);
    job.send(1, key_of(1, 0, "held"), std::vector<int>(25, 1));
    job.send(1, key_of(1, 0, "large"), std::vector<int>(100, 1));
    job[1].cancel(job.step(1, 1), *receives[5],
                  std::make_exception_ptr(cohort::error(errc::closed, "cancelled")));
    job[1].cleanup(9);
    job[1].abort(job.step(1, 8), std::make_exception_ptr(cohort::error(errc::stalled, "why")));
    job[1].drain(job.step(1, 1), drained);
  }
  void finish() {
    for (int round = 0; round < 8; ++round) {
      for (const meeting::transfer& one : job[1].take_transfers()) {
        job[1].transferred(one, make_error_code(errc::peer_lost));
      }
    }
    bytes out;
    for (const int to : {0, 2}) job[1].outbox().take_message(to, out);
    static_cast<void>(job[1].finish());
    job[1].break_down(std::make_exception_ptr(cohort::error(errc::closed, "the end")));
    for (const auto& one : receives) require(one->ends == 1, "a receive has not ended once");
    require(drained.ends == 1, "drained has not ended once");
  }
  fake_job job;
  std::unique_ptr<probe<std::vector<int>>> receives[6];
  probe<int> drained;
};

void write_corpus(const std::string& folder) {
  cohort_test::corpus_writer files(folder + "/message");
  const auto write = [&](const bytes& message) { files({}, message); };
  scene one;
  // What the others say to rank 1, and what it says, in the course of a job.
  probe<std::vector<int>> large, held, late;
  one.job.send(1, key_of(0, 1, "a"), std::vector<int>(3, 1));
  one.job.send(1, key_of(0, 1, "a"), std::vector<int>(300, 1));
  one.job.receive(1, key_of(1, 0, "large"), large);
  one.job.receive(1, key_of(1, 0, "held"), held);
  one.job.receive(8, key_of(1, 0, "aborted"), late);
  for (int i = 0; i < 200; ++i) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        bytes message;
        if (!one.job[from].outbox().take_message(to, message)) continue;
        write(message);
        one.job.net.send(from, to, std::move(message));
      }
    }
    if (!one.job.one()) break;
  }
  one.job[0].abort(one.job.step(0, 1), std::make_exception_ptr(cohort::error(errc::stalled, "x")));
  bytes message;
  if (one.job[0].outbox().take_message(1, message)) write(message);
  message.clear();
  cohort::wire::writer left(message);
  put(left, meeting::record{.kind = meeting::record_kind::refusal,
                            .id = 1,
                            .why = meeting::reason::left,
                            .cause = {{}, 0, "no weights (train.cpp:41)"}});
  write(message);
  for (int kind = 1; kind <= static_cast<int>(meeting::last_record_kind); ++kind) {
    meeting::record record;
    record.kind = static_cast<meeting::record_kind>(kind);
    record.step = 1;
    record.name = "a";
    record.id = 1;
    record.type = meeting::type_id<std::vector<int>>();
    record.size = 400;
    record.why = meeting::reason::aborted;
    bytes text;
    cohort::wire::writer out(text);
    put(out, record);
    write(text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return cohort_test::write_corpus_if_asked(*argc, *argv, write_corpus);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> message(reinterpret_cast<const std::byte*>(data), size);
  cohort::wire::reader in(message);
  bool whole = true;
  while (in.left() != 0) {
    const auto rest = message.last(in.left());
    const meeting::record once = meeting::get_record(in);
    whole = in.ok();
    if (!whole) {
      require(meeting::explain_record(rest).starts_with("field '"), "no field is named");
      break;
    }
    bytes text;
    cohort::wire::writer out(text);
    put(out, once);
    cohort::wire::reader again(text);
    const meeting::record twice = meeting::get_record(again);
    require(again.ok() && again.left() == 0, "what was decoded cannot be encoded");
    bytes second;
    cohort::wire::writer other(second);
    put(other, twice);
    require(text == second, "decoding and encoding do not settle");
  }
  for (const int from : {0, 2}) {
    scene one;
    for (int twice = 0; twice < 2; ++twice) one.job[1].receive(from, message);
    require(whole || one.job[1].outbox().is_lost(from), "its sender is not lost");
    one.finish();
  }
  return 0;
}
