// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/comm/channel.hpp>

#include "support/catch.hpp"
#include "support/world.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

using namespace cohort_test;

namespace {

class reader final : public cohort::comm::mailbox::owner {
 public:
  struct letter {
    int from;
    unsigned kind;
    std::size_t size;
  };
  std::vector<letter> received_;
  std::vector<std::error_code> sent_;
  std::vector<std::pair<int, std::error_code>> failed_;
  bool throws_ = false;  // once

 private:
  void received(int from, unsigned kind, std::span<const std::byte> message) override {
    received_.push_back({from, kind, message.size()});
    if (std::exchange(throws_, false)) throw std::runtime_error("of no use");
  }
  void sent(int, std::error_code failed) override { sent_.push_back(failed); }
  void failed(int peer, std::error_code why) override { failed_.push_back({peer, why}); }
};

void send(cohort::comm::mailbox& from, int to, unsigned kind, std::size_t size) {
  from.send(to, kind, [size](std::vector<std::byte>& out) { out.resize(out.size() + size); });
}

constexpr cohort::comm::channel_options small{.fragment = 1000};

}  // namespace

TEST_CASE("a mailbox tells of what has come and what has left") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto mine = std::make_shared<reader>();
    const auto box = std::make_shared<cohort::comm::mailbox>(world, small);
    box->open(mine);
    const int to = right_of(world);
    for (unsigned number = 0; number < 20; ++number) {
      while (box->sending(to)) co_await asio::post(asio::use_awaitable);
      send(*box, to, number, std::size_t{500} * number);
    }
    while (mine->received_.size() < 20 || mine->sent_.size() < 20) {
      co_await asio::post(asio::use_awaitable);
    }
    for (unsigned number = 0; number < 20; ++number) {
      CHECK(mine->received_[number].from == left_of(world));
      CHECK(mine->received_[number].kind == number);
      CHECK(mine->received_[number].size == std::size_t{500} * number);
      CHECK(!mine->sent_[number]);
    }
    co_await meet(world);
    box->close();
    while (box->receives()) co_await asio::post(asio::use_awaitable);
    CHECK(mine->failed_.empty());
  });
}

TEST_CASE("what an owner throws leaves the loop, and the rest is handed on after that") {
  asio::io_context io;
  const cohort::communicator world(io);
  const auto mine = std::make_shared<reader>();
  mine->throws_ = true;
  const auto box = std::make_shared<cohort::comm::mailbox>(world, small);
  box->open(mine);
  const std::byte nothing{};
  for (unsigned number = 0; number < 3; ++number) {
    box->send_at_once(right_of(world), number, std::span(&nothing, 1));
  }
  int thrown = 0;
  while (mine->received_.size() < 3) {
    try {
      io.restart();
      io.poll();
      asio::use_service<cohort::progress::engine>(io).attend();
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  CHECK(thrown == 1);
  for (unsigned number = 0; number < 3; ++number) CHECK(mine->received_[number].kind == number);
  run(io, meet(world));
  box->close();
  io.restart();
  io.run();
  CHECK(!box->receives());
}

TEST_CASE("a mailbox that takes one at a time leaves what comes then to the one that follows it") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    constexpr cohort::comm::channel_options one_by_one{.tag = 3, .one_by_one = true};
    const auto mine = std::make_shared<reader>();
    const auto beside = std::make_shared<reader>();
    const auto until_received = [&](std::size_t letters) -> asio::awaitable<void> {
      while (mine->received_.size() < letters) co_await asio::post(asio::use_awaitable);
    };
    const auto first = std::make_shared<cohort::comm::mailbox>(world, one_by_one);
    const auto other = std::make_shared<cohort::comm::mailbox>(world, small);
    first->open(mine);
    other->open(beside);
    for (unsigned number = 0; number < 3; ++number) {
      first->send_at_once(right_of(world), number, {});
    }
    co_await until_received(1);
    for (int i = 0; i < 2; ++i) co_await meet(world);  // the others have come
    CHECK(mine->received_.size() == 1);
    first->resume();
    co_await until_received(2);
    for (int i = 0; i < 2; ++i) co_await meet(world);
    first->close();
    CHECK(!first->receives());
    const auto second = std::make_shared<cohort::comm::mailbox>(world, one_by_one);
    second->open(mine);
    co_await until_received(3);
    for (unsigned number = 0; number < 3; ++number) CHECK(mine->received_[number].kind == number);
    co_await meet(world);
    second->close();
    other->close();
    while (other->receives()) co_await asio::post(asio::use_awaitable);
    CHECK(beside->received_.empty());
    CHECK(mine->failed_.empty());
  });
}
