// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/comm/channel.hpp>
#include <cohort/shm/memory.hpp>

#include "support/catch.hpp"
#include "support/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace cohort_test;
using cohort::comm::channel;
using cohort::comm::channel_options;
using cohort::comm::message_rings;
using guard = cohort::comm::request_source::guard;

namespace {

/// An owner that keeps what it is told, and says what waits in its queues.
class mailbox final : public channel::client {
 public:
  struct letter {
    int from;
    unsigned kind;
    std::vector<std::byte> bytes;
  };
  struct refusal {
    int from;
    std::string what;
  };

  mailbox(cohort::communicator over, const channel_options& options,
          std::shared_ptr<message_rings> rings = nullptr)
      : over_(std::move(over)),
        queues_(static_cast<std::size_t>(over_.size())),
        rings_(std::move(rings)),
        channel_(*this, options) {}

  void open(std::span<const int> peers = {}) {
    const guard hold(source());
    channel_.open(over_, peers, rings_);
    channel_.expect(true);
  }
  void post(int to, unsigned kind, std::vector<std::byte> bytes) {
    const guard hold(source());
    queues_[static_cast<std::size_t>(to)].push_back({to, kind, std::move(bytes)});
    flush(to);
    over_.state()->engine.started();
  }
  /// Runs the loop until it is so.
  asio::awaitable<void> until(std::function<bool()> holds) {
    for (;;) {
      {
        const guard hold(source());
        if (holds()) co_return;
      }
      co_await asio::post(asio::use_awaitable);
    }
  }
  asio::awaitable<void> until_received(std::size_t letters) {
    const std::function<bool()> all = [this, letters] { return received_.size() >= letters; };
    co_await until(all);
  }
  /// All ranks are done with it.
  asio::awaitable<void> close() {
    const std::function<bool()> all_left = [this] { return !channel_.sending(); };
    const std::function<bool()> settled = [this] { return channel_.operations() == 0; };
    co_await until(all_left);
    co_await meet(over_);
    {
      const guard hold(source());
      channel_.close();
    }
    over_.state()->engine.started();
    co_await until(settled);
  }
  [[nodiscard]] std::vector<letter> from(int rank) const {
    std::vector<letter> all;
    for (const letter& each : received_) {
      if (each.from == rank) all.push_back(each);
    }
    return all;
  }

  [[nodiscard]] cohort::comm::request_source& source() const { return over_.state()->source; }
  [[nodiscard]] channel& get() noexcept { return channel_; }
  std::vector<letter> received_;
  std::vector<refusal> refused_;
  std::vector<std::error_code> failed_;
  bool pauses_ = false;  // after each message

 private:
  void received(int from, unsigned kind, std::span<const std::byte> message) override {
    received_.push_back({from, kind, {message.begin(), message.end()}});
    if (pauses_) channel_.pause();
  }
  void sent(int to) override { flush(to); }
  void malformed(int from, const char* what) override { refused_.push_back({from, what}); }
  void failed(int, bool, std::error_code why) override { failed_.push_back(why); }
  void settled() override {}
  void flush(int to) {
    std::vector<letter>& queue = queues_[static_cast<std::size_t>(to)];
    while (!queue.empty() && !channel_.sending(to)) {
      auto& out = channel_.message(to);
      out.insert(out.end(), queue.front().bytes.begin(), queue.front().bytes.end());
      REQUIRE(!channel_.send(to, queue.front().kind));
      queue.erase(queue.begin());
    }
  }

  cohort::communicator over_;
  std::vector<std::vector<letter>> queues_;
  std::shared_ptr<message_rings> rings_;
  channel channel_;
};

/// Null for MPI. Collective, and blocks.
std::shared_ptr<message_rings> rings_of(const cohort::communicator& world, bool through_rings) {
  if (!through_rings) return nullptr;
  const cohort::mpi::lock calls;
  const auto ranks = static_cast<std::size_t>(world.size());
  struct kept {
    cohort::shm::segment memory;
    std::optional<message_rings> rings;
  };
  const auto made = std::make_shared<kept>();
  if (world.rank() == 0) made->memory = cohort::shm::segment(message_rings::bytes(ranks));
  cohort::shm::segment::address where = made->memory.where();
  MPI_Bcast(&where, sizeof where, MPI_BYTE, 0, world.native());
  if (world.rank() != 0) made->memory = cohort::shm::segment(where);
  MPI_Barrier(world.native());
  made->rings.emplace(made->memory.bytes(), world.rank(), world.size());
  return {made, &*made->rings};
}

/// What that rank sends as its message of that number.
std::vector<std::byte> text_of(int rank, int to, std::size_t number, std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(1000 * rank + 100 * to) +
                      static_cast<unsigned>(number));
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

constexpr std::size_t sizes[] = {0, 1, 62, 63, 64, 65, 126, 127, 5000, 300, 0, 100'000, 7};

}  // namespace

TEST_CASE("messages of any length come in order, whole, and with their kinds") {
  const auto peers = GENERATE(false, true);  // named one by one, or any
  const auto rings = GENERATE(false, true);
  on_world([peers, rings](cohort::communicator world) -> asio::awaitable<void> {
    mailbox box(world, {.fragment = 64}, rings_of(world, rings));
    std::vector<int> all;
    for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
    box.open(peers ? std::span<const int>(all) : std::span<const int>());
    for (std::size_t number = 0; number < std::size(sizes); ++number) {
      for (const int to : all) {
        box.post(to, static_cast<unsigned>(number % 64),
                 text_of(world.rank(), to, number, sizes[number]));
      }
    }
    co_await box.until_received(std::size(sizes) * all.size());
    for (const int from : all) {
      const auto came = box.from(from);
      REQUIRE(came.size() == std::size(sizes));
      for (std::size_t number = 0; number < came.size(); ++number) {
        INFO("message " << number << " from rank " << from);
        CHECK(came[number].kind == number % 64);
        CHECK(came[number].bytes == text_of(from, world.rank(), number, sizes[number]));
      }
    }
    co_await box.close();
    CHECK(box.refused_.empty());
    CHECK(box.failed_.empty());
    std::uint64_t to_all = 0;
    for (const int to : all) to_all += box.get().messages_to(to);
    CHECK(box.get().statistics().messages_sent == to_all);
    CHECK(box.get().statistics().messages_received == to_all);  // all ranks send the same
  });
}

TEST_CASE("a message in between passes the rest of a long one") {
  const auto rings = GENERATE(false, true);
  on_world([rings](cohort::communicator world) -> asio::awaitable<void> {
    constexpr std::size_t fragment = 100'000;  // no MPI sends so much before it is received
    constexpr std::size_t size = 3 * fragment;
    mailbox box(world, {.fragment = fragment}, rings_of(world, rings));
    if (world.rank() == 0) {
      box.open();
      box.post(1, 1, text_of(0, 1, 0, size));
      const guard hold(box.source());
      CHECK(box.get().sending(1));
      CHECK(!box.get().all_posted(1));
      const std::byte word{7};
      CHECK(!box.get().send_at_once(1, 2, std::span(&word, 1)));
    }
    co_await meet(world);
    if (world.rank() != 0) box.open();
    if (world.rank() == 1) {
      co_await box.until_received(2);
      CHECK(box.received_[0].kind == 2);
      CHECK(box.received_[0].bytes == std::vector<std::byte>{std::byte{7}});
      CHECK(box.received_[1].kind == 1);
      CHECK(box.received_[1].bytes == text_of(0, 1, 0, size));
    }
    co_await box.close();
  });
}

TEST_CASE("what has been given up is not sent to its end, and the rest of a channel ends") {
  const auto rings = GENERATE(false, true);
  on_world([rings](cohort::communicator world) -> asio::awaitable<void> {
    constexpr std::size_t fragment = 100'000;
    mailbox box(world, {.fragment = fragment}, rings_of(world, rings));
    if (world.rank() == 0) {
      box.open();
      box.post(1, 1, text_of(0, 1, 0, 3 * fragment));
      const guard hold(box.source());
      box.get().give_up();
      const std::byte word{7};
      CHECK(!box.get().send_at_once(1, 2, std::span(&word, 1)));
    }
    co_await meet(world);
    if (world.rank() != 0) box.open();
    if (world.rank() == 1) co_await box.until_received(1);
    co_await box.close();
    if (world.rank() == 1) {
      CHECK(box.received_.size() == 1);
      CHECK(box.received_[0].kind == 2);
    }
    // One fragment, or what a ring has room for, and the word.
    const std::uint64_t fragments = box.get().statistics().messages_sent;
    if (world.rank() == 0) CHECK((rings ? fragments > 1 && fragments < 10 : fragments == 2));
  });
}

TEST_CASE("nothing of a rank is taken that has sent what is no message, or too much") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    mailbox box(world, {.fragment = 64, .longest = 1000});
    box.open();
    co_await meet(world);
    const int last = world.size() - 1;
    if (world.rank() == 0) {
      box.post(last, 1, text_of(0, last, 0, 1000));  // no more is taken
      box.post(last, 1, text_of(0, last, 0, 1001));
      box.post(last, 1, text_of(0, last, 1, 10));
    }
    const std::function<bool()> third_refused = [&box] { return box.refused_.size() == 2; };
    if (world.rank() == last) co_await box.until(third_refused);
    co_await meet(world);
    if (world.rank() == last) {
      {
        const cohort::mpi::lock calls;
        MPI_Request empty = MPI_REQUEST_NULL;
        MPI_Isend(nullptr, 0, MPI_BYTE, last, 0, world.native(), &empty);
        MPI_Request_free(&empty);
      }
      const std::function<bool()> all_refused = [&box] { return box.refused_.size() == 3; };
      co_await box.until(all_refused);
      CHECK(box.refused_[0].from == 0);
      CHECK(box.refused_[0].what == "a message that is too long");
      CHECK(box.refused_[1].from == 0);
      CHECK(box.refused_[1].what == "a message after one that is none");
      CHECK(box.refused_[2].from == last);
      CHECK(box.refused_[2].what == "a message without a byte");
    }
    // 16 fragments of each of the two, the third, and the empty one.
    const std::function<bool()> all_came = [&box] {
      return box.get().statistics().messages_received == 16 + 16 + 1 + 1;
    };
    if (world.rank() == last) co_await box.until(all_came);
    co_await box.close();
    if (world.rank() == last) {
      REQUIRE(box.received_.size() == 1);
      CHECK(box.received_[0].bytes.size() == 1000);
    }
  });
}

TEST_CASE("the next message waits while its owner pauses") {
  const auto rings = GENERATE(false, true);
  on_world([rings](cohort::communicator world) -> asio::awaitable<void> {
    mailbox box(world, {}, rings_of(world, rings));
    box.pauses_ = true;
    box.open();
    const int to = right_of(world);
    box.post(to, 1, {});
    box.post(to, 2, {});
    co_await box.until_received(1);
    // It has come, and nobody has posted a receive for it.
    for (int has_come = rings ? 1 : 0; has_come == 0;) {
      {
        const cohort::mpi::lock calls;
        MPI_Iprobe(left_of(world), 0, world.native(), &has_come, MPI_STATUS_IGNORE);
      }
      co_await asio::post(asio::use_awaitable);
    }
    CHECK(box.received_.size() == 1);
    CHECK(box.get().paused());
    box.pauses_ = false;
    {
      const guard hold(box.source());
      box.get().resume();
    }
    world.state()->engine.started();
    co_await box.until_received(2);
    CHECK(box.received_[1].kind == 2);
    co_await box.close();
  });
}

TEST_CASE("a channel may be closed while it pauses") {
  const auto rings = GENERATE(false, true);
  on_world([rings](cohort::communicator world) -> asio::awaitable<void> {
    mailbox box(world, {}, rings_of(world, rings));
    box.pauses_ = true;
    box.open();
    box.post(right_of(world), 1, {});
    co_await box.until_received(1);
    co_await box.close();
    CHECK(box.get().operations() == 0);
    CHECK(!box.get().receives());
    CHECK(box.failed_.empty());
  });
}

TEST_CASE("an engine whose channels expect nothing makes no lap until a message comes") {
  const auto rings = GENERATE(false, true);
  asio::io_context io;
  cohort::communicator world(io);
  mailbox box(world, {}, rings_of(world, rings));
  run(io,
      [](mailbox& here, asio::io_context& loop, cohort::communicator all) -> asio::awaitable<void> {
        here.open();
        {
          const guard hold(here.source());
          here.get().expect(false);
        }
        co_await meet(all);
        // Longer than it sleeps between the looks after what it has sent.
        co_await until_it_sleeps(loop, 1200ms);
        co_await meet(all);
        co_await until_it_sleeps(loop, 1200ms);
        // Rank 0 sends; nothing but its ring can wake the others.
        for (int to = 1; all.rank() == 0 && to < all.size(); ++to) {
          here.post(to, 0, text_of(0, to, 0, 30'000));
        }
        while (all.rank() != 0 && here.received_.empty()) co_await pause(1ms);
        co_await meet(all);
      }(box, io, world));
  // That run() has returned shows the rest: an open channel keeps nothing alive.
  {
    const guard hold(box.source());
    box.get().close();
  }
  io.run();
  CHECK(box.get().operations() == 0);
}

TEST_CASE("a ring carries messages of any length in order, whoever is faster") {
  constexpr int ranks = 2;
  std::vector<std::byte> memory(message_rings::bytes(ranks) + message_rings::line);
  void* at = memory.data();
  std::size_t room = memory.size();
  std::align(message_rings::line, message_rings::bytes(ranks), at, room);
  const std::span shared(static_cast<std::byte*>(at), message_rings::bytes(ranks));
  message_rings sender(shared, 0, ranks);
  message_rings receiver(shared, 1, ranks);
  constexpr std::size_t messages = 20'000;
  const auto size_of = [&](std::size_t number) {
    return number % 7 == 0 ? number % (sender.longest() + 1) : number % 130;
  };
  std::thread other([&] {
    for (std::size_t number = 0; number < messages; ++number) {
      const std::vector<std::byte> text(size_of(number), static_cast<std::byte>(number));
      while (!sender.send(1, text)) std::this_thread::yield();
    }
  });
  std::size_t wrong = 0;
  for (std::size_t number = 0; number < messages; ++number) {
    const std::vector<std::byte> expected(size_of(number), static_cast<std::byte>(number));
    const auto check = [&](std::span<const std::byte> text) {
      if (!std::equal(text.begin(), text.end(), expected.begin(), expected.end())) ++wrong;
    };
    while (!receiver.receive(0, check)) std::this_thread::yield();
  }
  other.join();
  CHECK(wrong == 0);
  CHECK(!receiver.receive(0, [](std::span<const std::byte>) {}));
  CHECK(!sender.receive(1, [](std::span<const std::byte>) {}));  // nothing comes the other way
}
