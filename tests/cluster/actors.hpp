// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A launch whose workers the test plays itself.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/progress/future.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cluster/scripts.hpp"
#include "cluster/support.hpp"
#include "support/patience.hpp"

namespace cohort_test {

using cohort::cluster::message;
using cohort::cluster::message_kind;
using bytes = std::vector<std::byte>;

inline asio::awaitable<void> sleep(asio::io_context& io, std::chrono::nanoseconds time) {
  asio::steady_timer timer(io, time);
  co_await timer.async_wait(asio::use_awaitable);
}

/// What the launcher would give to its ranks.
struct told {
  cluster::launch_token token{};
  asio::ip::tcp::endpoint where;
};

/// The launcher is a script that writes down what it is told, and sleeps.
class stage {
 public:
  explicit stage(int ranks) : ranks_(ranks), facts_(files_.path("facts")) {
    script_ = files_.script("mpiexec",
                            "case \"$*\" in *--version*) exit 0;; esac\n"
                            "echo \"$COHORT_CLUSTER_TOKEN $COHORT_CLUSTER_MANAGER\" > " +
                                files_.path("part") + " && mv " + files_.where() + "/part " +
                                facts_ + "\necho $$ > " + files_.path("pid") + "\nexec sleep 120");
  }

  [[nodiscard]] launch_options options() const {
    return quiet(ranks_)
        .command({script_})
        .interface("127.0.0.1")
        .grace(100ms)
        .timeout(cohort_test::patient(20s));
  }
  [[nodiscard]] int launcher() const { return std::stoi(contents(files_.where() + "/pid")); }

  asio::awaitable<told> facts(asio::io_context& io) const {
    while (!std::filesystem::exists(files_.where() + "/pid") || contents(facts_).empty() ||
           contents(files_.where() + "/pid").empty()) {
      auto pause = sleep(io, 5ms);
      co_await std::move(pause);
    }
    std::istringstream text(contents(facts_));
    std::string token;
    std::string where;
    text >> token >> where;
    told result;
    if (!cluster::parse_token(token, result.token)) throw std::runtime_error("no token");
    result.where = cluster::parse_endpoint(where).value();
    co_return result;
  }

 private:
  own_launcher own_;
  int ranks_;
  folder files_;
  std::string facts_;
  std::string script_;
};

/// One that speaks as a worker.
class actor {
 public:
  actor(asio::io_context& io, const told& facts) : io_(io), facts_(facts), changed_(io) {
    hello.session = cohort::random_bytes<cluster::session_size>();
    hello.purpose = cluster::purpose::control;
  }

  asio::awaitable<void> connect() {
    auto connecting = cluster::connect(io_, {facts_.where}, facts_.token, hello);
    auto socket = co_await std::move(connecting);
    line = std::make_shared<cluster::tcp_link>(std::move(socket), std::size_t{1} << 30U);
    line->start(
        [this](message&& each) {
          if (each.kind == message_kind::refused) {
            leave();
            closed = true;
          }
          got.push_back(std::move(each));
          changed_.notify();
        },
        [this](std::error_code) {
          closed = true;
          changed_.notify();
        });
  }
  /// Once, and says what was wrong.
  asio::awaitable<std::string> attempt() {
    const auto socket = std::make_shared<cluster::tcp_socket>(io_);
    auto trying = cluster::detail::attempt(socket, facts_.where, facts_.token, hello);
    co_return co_await std::move(trying);
  }
  void identify(int rank) {
    cluster::identity self;
    self.program = cohort::program_id();
    self.table = cohort::function_table::instance().digest();
    self.host = "stage";
    self.machine = machine;
    self.pid = 1'000'000 + rank;
    self.rank = rank;
    line->send(message_kind::identity, 0, cohort::wire::encode(self));
  }
  void start(int rank, int size) {
    line->send(message_kind::started, 0, cohort::wire::encode(cluster::started{rank, size}));
  }
  /// Returns the manager's welcome.
  asio::awaitable<message> join(int rank) {
    auto connecting = connect();
    co_await std::move(connecting);
    identify(rank);
    auto welcome = next(message_kind::welcome);
    co_return co_await std::move(welcome);
  }
  asio::awaitable<void> begin(int rank, int size) {
    auto joining = join(rank);
    co_await std::move(joining);
    start(rank, size);
  }
  /// The next message of that kind; others before it are dropped.
  asio::awaitable<message> next(message_kind kind) {
    for (;;) {
      while (got.empty()) {
        if (closed) throw std::runtime_error("the manager has closed the connection");
        co_await changed_.wait();
      }
      message first = std::move(got.front());
      got.pop_front();
      if (first.kind == kind) co_return first;
    }
  }
  asio::awaitable<void> until_closed() {
    while (!closed) co_await changed_.wait();
  }
  /// Does what a worker does at the end.
  asio::awaitable<void> finish() {
    auto finishing = next(message_kind::finish);
    co_await std::move(finishing);
    line->send(message_kind::finished, 0, finished(line->sent()));
    leave();
  }
  void leave() {
    line->when_flushed([line = line] { line->close(); });
  }
  static bytes finished(std::uint64_t sent, bool complete = true) {
    bytes text;
    cohort::wire::writer out(text);
    out.put(complete);
    out.varint(sent);
    return text;
  }

  cluster::greeting hello;
  std::uint64_t machine = 0;  ///< another one than the manager's
  std::shared_ptr<cluster::link> line;
  std::deque<message> got;
  bool closed = false;

 private:
  asio::io_context& io_;
  told facts_;
  cluster::event changed_;
};

using actors = std::deque<actor>;

/// A launch whose ranks are these actors, which all begin as they should.
inline asio::awaitable<workers> launched(asio::io_context& io, const stage& here, actors& cast) {
  const launch_options options = here.options();
  auto launching = asio::co_spawn(io, cluster::launch(io, options), cohort::as_future);
  auto looking = here.facts(io);
  const told facts = co_await std::move(looking);
  for (int rank = 0; rank < options.ranks(); ++rank) {
    cast.emplace_back(io, facts);
    auto beginning = cast.back().begin(rank, options.ranks());
    co_await std::move(beginning);
  }
  co_return co_await std::move(launching);
}

}  // namespace cohort_test
