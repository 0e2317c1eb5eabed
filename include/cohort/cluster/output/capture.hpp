// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks print: read from their sockets, made lines of, and given to sinks.
///
/// The room `output`: connections and bytes enter; lines leave, to sinks. It does not know who
/// prints.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/cluster/output/line.hpp>
#include <cohort/cluster/output/output_queue.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Reads one output of a rank, any connected stream of Asio, to its end or until it is cancelled;
/// either way the line that is not finished is delivered too. With overflow_policy::block it reads
/// only while the queue has room, and the rank waits. The queue must live as long.
template <class Stream>
[[nodiscard]] asio::awaitable<void> read_output(Stream from, int rank, output_stream which,
                                                output_queue& to,
                                                std::size_t longest = default_longest_line) {
  line_assembler lines(longest);
  const auto deliver = [&](std::string_view text, bool complete) {
    to.push({rank, which, text, complete});
  };
  std::vector<char> buffer(16 * 1024);
  try {
    for (;;) {
      if (!to.has_room()) co_await to.room();
      const std::size_t size =
          co_await from.async_read_some(asio::buffer(buffer), asio::use_awaitable);
      lines.push(std::string_view(buffer.data(), size), deliver);
    }
  } catch (const std::system_error&) {
    // The end of the stream, a connection that broke, or a cancellation: here they are the same.
  }
  lines.finish(deliver);
}

/// The outputs of one process.
struct captured_process {
  std::vector<std::pair<tcp_socket, output_stream>> unread;       ///< until its rank is known
  std::vector<std::weak_ptr<asio::cancellation_signal>> reading;  ///< end that

  template <class Any = void>
  void stop() {
    for (const auto& weak : reading) {
      if (const auto one = weak.lock()) one->emit(asio::cancellation_type::terminal);
    }
  }
};

/// All outputs of a job, and their way to its sinks. Must be owned by a shared_ptr.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_capture : public std::enable_shared_from_this<basic_capture<Any>> {
 public:
  using capture = basic_capture;

  /// `changed` is told when no output is read any more.
  basic_capture(asio::io_context& io, event changed, std::shared_ptr<output_queue> to,
                std::size_t longest_line)
      : io_(io), changed_(std::move(changed)), to_(std::move(to)), longest_(longest_line) {}
  basic_capture(const capture&) = delete;
  basic_capture& operator=(const capture&) = delete;

  [[nodiscard]] const std::shared_ptr<output_queue>& lines() const noexcept { return to_; }

  void read(tcp_socket socket, captured_process& owner, int rank, output_stream stream) {
    ask_when_idle(socket);
    const auto stop = std::make_shared<asio::cancellation_signal>();
    reading_.push_back(stop);
    owner.reading.push_back(stop);
    auto ended = [self = this->weak_from_this(), to = to_, stop](std::exception_ptr) {
      const auto here = self.lock();
      if (!here) return;
      std::erase(here->reading_, stop);
      if (here->reading_.empty()) here->changed_.notify();
    };
    run_beside(io_, read_output(std::move(socket), rank, stream, *to_, longest_), std::move(ended),
               stop->slot());
  }
  /// What has waited for the rank to be known, or never will be.
  void read_unread(captured_process& owner, int rank) {
    for (auto& [socket, stream] : std::exchange(owner.unread, {})) {
      read(std::move(socket), owner, rank, stream);
    }
  }
  /// Outputs end with their ranks, unless a process that a rank has started still has one.
  asio::awaitable<void> read_to_the_end(std::chrono::steady_clock::time_point limit) {
    const auto self = this->shared_from_this();
    for (bool in_time = true; in_time && !reading_.empty();) {
      in_time = co_await changed_.wait_until(limit);
    }
    const auto left = reading_;
    for (const auto& each : left) each->emit(asio::cancellation_type::terminal);
  }

 private:
  asio::io_context& io_;
  event changed_;
  std::shared_ptr<output_queue> to_;
  std::size_t longest_;
  std::vector<std::shared_ptr<asio::cancellation_signal>> reading_;  // one for each
};
using capture = basic_capture<void>;

}  // namespace cohort::cluster
