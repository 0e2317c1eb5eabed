// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Counts what an operation allocates once everything is warm. Every `operator new` and every
// `aligned_alloc` of the program goes through here; what MPI takes with malloc is not counted.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/persistent.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/p2p/batch.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/future.hpp>

#include <malloc.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/catch.hpp"

namespace {

long allocations = 0;
bool out_of_memory = false;
std::size_t too_much = SIZE_MAX;  // the next block of so many bytes is refused
long countdown = -1;              // blocks until one is refused

void* counted(std::size_t bytes) {
  ++allocations;
  if (out_of_memory) throw std::bad_alloc();
  if (countdown >= 0 && countdown-- == 0) throw std::bad_alloc();
  if (bytes >= too_much) {
    too_much = SIZE_MAX;
    throw std::bad_alloc();
  }
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<std::size_t>(alignment), bytes) == 0) return block;
  throw std::bad_alloc();
}

}  // namespace

long allocations_so_far();  // coordinator_test.cpp
long allocations_so_far() { return allocations; }
void refuse_next_block_of(std::size_t bytes);  // or more
void refuse_next_block_of(std::size_t bytes) { too_much = bytes; }
void refuse_block_in(long allocations);  // so many come first; negative: none is refused any more
void refuse_block_in(long allocations) { countdown = allocations; }
bool refuses_block();
bool refuses_block() { return countdown >= 0; }
bool has_refused_block();
bool has_refused_block() { return too_much == SIZE_MAX; }

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, alignment);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

// Newer versions of Asio allocate with this one.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  void* block = nullptr;
  return posix_memalign(&block, alignment, bytes) == 0 ? block : nullptr;
}

namespace {

using cohort::communicator;

constexpr int warm_up = 100;
constexpr int rounds = 200;
constexpr int all_rounds = warm_up + rounds + 10;  // what ending a coroutine takes is not counted

/// Allocations per operation, over `rounds` of them in each of `chains` chains: what stands at the
/// end of the last round minus what stood at the end of the warm-up.
class meter {
 public:
  explicit meter(int chains) : chains_(chains) {}
  /// Each chain calls it after each operation.
  void note(int round) {
    if (round == warm_up - 1 && ++warm_ == chains_) before_ = allocations;
    if (round == warm_up + rounds - 1 && ++counted_ == 1) after_ = allocations;
    if (round == all_rounds - 1) ++ended_;
  }
  [[nodiscard]] bool complete() const { return ended_ == chains_; }
  [[nodiscard]] double per_operation() const {
    return static_cast<double>(after_ - before_) / (static_cast<double>(rounds) * chains_);
  }

 private:
  int chains_;
  int warm_ = 0;
  int counted_ = 0;
  int ended_ = 0;
  long before_ = 0;
  long after_ = 0;
};

/// What a chain does again and again.
enum class work { post, sum, message };

/// One element per chain; on its own cache line, as a program would have it.
struct place {
  double number = 0;
  int in = 0;
  int out = 0;
};

struct callback_chain {
  callback_chain(const communicator& over, meter& counts, place& data)
      : comm(over), count(counts), mine(data) {}
  void next() {
    cohort::all_reduce(comm, mine.number, cohort::op::sum, [this](std::error_code failed) {
      if (failed) throw std::system_error(failed);
      count.note(round);
      if (++round < all_rounds) next();
    });
  }
  const communicator& comm;
  meter& count;
  place& mine;
  int round = 0;
};

asio::awaitable<void> await_chain(communicator comm, meter& count, place& mine, work what) {
  for (int round = 0; round < all_rounds; ++round) {
    if (what == work::post) {
      co_await asio::post(asio::use_awaitable);
    } else if (what == work::sum) {
      co_await cohort::all_reduce(comm, mine.number, cohort::op::sum);
    } else {
      co_await cohort::send(comm, mine.out, comm.rank(), 1);
    }
    count.note(round);
  }
}

asio::awaitable<void> receive_chain(communicator comm, place& mine) {
  for (int round = 0; round < all_rounds; ++round) {
    co_await cohort::recv(comm, mine.in, comm.rank(), 1);
  }
}

asio::awaitable<void> future_chain(communicator comm, meter& count, place& mine) {
  for (int round = 0; round < all_rounds; ++round) {
    auto sum = cohort::all_reduce(comm, mine.number, cohort::op::sum, cohort::as_future);
    co_await std::move(sum);
    count.note(round);
  }
}

double measure_awaits(int chains, work what) {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  meter count(chains);
  std::vector<place> places(static_cast<std::size_t>(chains));
  for (place& mine : places) {
    if (what == work::message) asio::co_spawn(io, receive_chain(self, mine), cohort::rethrow);
    asio::co_spawn(io, await_chain(self, count, mine, what), cohort::rethrow);
  }
  io.run();
  CHECK(count.complete());
  return count.per_operation();
}

TEST_CASE("callbacks allocate nothing per operation, however many are in flight") {
  const int chains = GENERATE(1, 16, 161);
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  meter count(chains);
  std::vector<place> places(static_cast<std::size_t>(chains));
  std::vector<callback_chain> list;
  list.reserve(places.size());
  for (place& mine : places) list.emplace_back(self, count, mine);
  for (callback_chain& each : list) each.next();
  io.run();
  CAPTURE(chains);
  CHECK(count.complete());
  CHECK(count.per_operation() == 0);
}

// Asio keeps two frames a thread, so that a burst of coroutines that resume one after the other
// allocates: with its own operations as well, which is what is subtracted.
TEST_CASE("awaits allocate nothing per operation, however many coroutines there are") {
  const int chains = GENERATE(1, 16, 161);
  const double asio_alone = measure_awaits(chains, work::post);
  const double sums = measure_awaits(chains, work::sum);
  const double messages = measure_awaits(chains, work::message);
  CAPTURE(chains, asio_alone, sums, messages);
  if (chains == 1) CHECK(sums == 0);
  CHECK(sums - asio_alone <= 0);
  CHECK(messages - 2 * asio_alone <= 0);  // a send and a receive
}

TEST_CASE("a future allocates at most one block more") {
  const int chains = GENERATE(1, 16, 161);
  const double asio_alone = measure_awaits(chains, work::post);
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  meter count(chains);
  std::vector<place> places(static_cast<std::size_t>(chains));
  for (place& mine : places) {
    asio::co_spawn(io, future_chain(self, count, mine), cohort::rethrow);
  }
  io.run();
  CAPTURE(chains, asio_alone, count.per_operation());
  CHECK(count.complete());
  CHECK(count.per_operation() - asio_alone <= 1.1);
}

TEST_CASE("a batch allocates one block at most, and nothing when it is run again") {
  const bool persistent = GENERATE(false, true);
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  std::array<int, 8> in{};
  const std::array<int, 8> out{};
  const auto fill = [&](cohort::batch& messages) {
    for (std::size_t i = 0; i < in.size(); ++i) messages.recv(in[i], 0, static_cast<int>(i));
    for (std::size_t i = 0; i < in.size(); ++i) messages.send(out[i], 0, static_cast<int>(i));
    if (persistent) messages.persistent();
  };
  int ended = 0;
  const auto run = [&](cohort::batch& messages, int times) {
    for (int i = 0; i < times; ++i) {
      messages.run([&](std::error_code failed) { ended += failed ? 0 : 1; });
      io.run();
      io.restart();
      messages.run(cohort::blocking);
    }
  };
  {
    cohort::batch warm(self);
    fill(warm);
    run(warm, warm_up);
  }
  const long before = allocations;
  cohort::batch messages(self);
  fill(messages);
  const long filled = allocations;
  run(messages, rounds);
  CHECK(filled - before <= 1);
  CHECK(allocations == filled);
  CHECK(ended == warm_up + rounds);
}

TEST_CASE(
    "a persistent collective allocates one block, nothing for a run, and a future for a start") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  int value = 1;
  int ended = 0;
  const auto run = [&](auto& most, int times) {
    for (int i = 0; i < times; ++i) {
      most.run([&](std::error_code failed) { ended += failed ? 0 : 1; });
      io.run();
      io.restart();
      most.run(cohort::blocking);
    }
  };
  const auto in_parts = [](auto& most, int times) {
    for (int i = 0; i < times; ++i) {
      most.start();
      most.finish(cohort::blocking);
    }
  };
  {
    auto warm = cohort::all_reduce_init(self, value, cohort::op::max);
    run(warm, warm_up);
    in_parts(warm, warm_up);
  }
  const long before = allocations;
  auto most = cohort::all_reduce_init(self, value, cohort::op::max);
  const long made = allocations;
  run(most, rounds);
  CHECK(made - before <= 1);
  CHECK(allocations == made);
  CHECK(ended == warm_up + rounds);
  in_parts(most, rounds);
  CHECK(allocations - made <= 2 * rounds);  // a future each, and what Asio needs for one
}

// Also the first time: a look that failed in the middle would lose what it has taken from MPI.
TEST_CASE("a look needs no memory, however many operations it finds complete") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  auto& engine = cohort::use_engine(io);
  std::array<int, 100> in{};
  const std::array<int, 100> out{};
  std::size_t received = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    cohort::recv(self, in[i], 0, static_cast<int>(i), [&](std::error_code failed, cohort::status) {
      if (!failed) ++received;
    });
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(&out[i], 1, MPI_INT, 0, static_cast<int>(i), self.native(), &sent);
    MPI_Request_free(&sent);
  }
  std::uint64_t looks = 0;
  out_of_memory = true;
  try {
    for (; engine.pending() != 0 && looks < 1'000'000; ++looks) engine.look();
  } catch (const std::bad_alloc&) {
    out_of_memory = false;
    FAIL("a look wanted memory");
  }
  out_of_memory = false;
  CHECK(looks < 100);  // so some look found several
  io.run();
  CHECK(received == in.size());
}

TEST_CASE("a million operations leave the memory as it was") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  std::array<place, 64> places{};
  long done = 0;
  std::size_t early = 0;
  const auto in_use = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const auto chain = [&](place& mine, long n) -> asio::awaitable<void> {
    for (long i = 0; i < n; ++i) {
      co_await cohort::all_reduce(self, mine.number, cohort::op::sum);
      if (++done == 100'000) early = in_use();
    }
  };
  for (place& mine : places) asio::co_spawn(io, chain(mine, 1'000'000 / 64), cohort::rethrow);
  const long before = allocations;
  io.run();
  CHECK(done == 1'000'000);
  CHECK(allocations - before < 10'000);
  CHECK(in_use() < early + 100'000);  // bytes, of the whole process
}

}  // namespace
