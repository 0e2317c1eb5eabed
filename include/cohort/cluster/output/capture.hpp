// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks print: read from their sockets, made lines of, and given to sinks.
///
/// The room `output`: connections and bytes enter; lines leave, to sinks. It does not know who
/// prints.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/cluster/output/output_queue.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Makes lines of one stream, however its bytes arrive. Keeps at most one line of `longest` bytes.
class line_assembler {
 public:
  /// A bound below one byte counts as one.
  explicit line_assembler(std::size_t longest = default_longest_line)
      : longest_(std::max<std::size_t>(longest, 1)) {}

  /// Calls `deliver(std::string_view text, bool complete)` for each line that is finished by
  /// `bytes`, and for each part of one that has reached the bound. A line whose length is exactly
  /// the bound is whole.
  template <class Deliver>
  void push(std::string_view bytes, Deliver&& deliver) {
    while (!bytes.empty()) {
      const std::size_t room = longest_ - partial_.size();
      // One byte more than fits: it may be the newline.
      const std::size_t newline = bytes.substr(0, room + 1).find('\n');
      if (newline != std::string_view::npos) {
        give(bytes.substr(0, newline), true, deliver);
        bytes.remove_prefix(newline + 1);
      } else if (bytes.size() <= room) {
        partial_ += bytes;
        return;
      } else {
        give(bytes.substr(0, room), false, deliver);
        bytes.remove_prefix(room);
      }
    }
  }

  /// The stream has ended: delivers what came after the last newline, if anything did.
  template <class Deliver>
  void finish(Deliver&& deliver) {
    if (!partial_.empty()) give({}, false, deliver);
  }

 private:
  /// Delivers what is kept and `more` as one text; copies only if something is kept.
  template <class Deliver>
  void give(std::string_view more, bool complete, Deliver& deliver) {
    if (partial_.empty()) {
      deliver(more, complete);
      return;
    }
    partial_ += more;
    const std::string text = std::move(partial_);  // moved first: `deliver` may throw
    partial_.clear();
    deliver(std::string_view(text), complete);
  }

  std::size_t longest_;
  std::string partial_;
};

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
template <class Any>
class basic_capture : public std::enable_shared_from_this<basic_capture<Any>> {
 public:
  /// `changed` is told when no output is read any more.
  basic_capture(asio::io_context& io, event changed, std::shared_ptr<output_queue> to,
                std::size_t longest_line)
      : io_(io), changed_(std::move(changed)), to_(std::move(to)), longest_(longest_line) {}
  basic_capture(const basic_capture&) = delete;
  basic_capture& operator=(const basic_capture&) = delete;

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
    const auto reads = [this] { return !reading_.empty(); };
    co_await changed_.wait_while(reads, limit);
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
