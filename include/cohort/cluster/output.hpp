// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks print: read from their sockets, made lines of, and given to sinks.

#include <cohort/cluster/line_assembler.hpp>
#include <cohort/cluster/output_line.hpp>
#include <cohort/cluster/output_queue.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>

#include <cstddef>
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

}  // namespace cohort::cluster
