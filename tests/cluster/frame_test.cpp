// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/cluster/link/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using cohort::cluster::frame_head;
using cohort::cluster::frame_limit;
using cohort::cluster::frame_reader;
using cohort::cluster::message;
using cohort::cluster::message_kind;
using bytes = std::vector<std::byte>;

namespace {

bytes some_bytes(std::size_t size) {
  bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

/// The frames of a message, one after the other.
bytes frames_of(const bytes& body) {
  bytes out;
  std::size_t begin = 0;
  do {
    frame_head head;
    head.kind = message_kind::call;
    head.id = 7;
    head.size = static_cast<std::uint32_t>(std::min(frame_limit, body.size() - begin));
    head.last = begin + head.size == body.size();
    const auto encoded = cohort::cluster::encode_frame_head(head);
    out.insert(out.end(), encoded.begin(), encoded.end());
    const auto from = body.begin() + static_cast<std::ptrdiff_t>(begin);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(head.size));
    begin += head.size;
  } while (begin != body.size());
  return out;
}

/// What a reader makes of a stream that arrives in pieces.
std::optional<message> read(frame_reader& reader, std::span<const std::byte> stream,
                            std::size_t piece) {
  std::optional<message> got;
  while (!stream.empty()) {
    const std::size_t size = std::min(piece, stream.size());
    const bool fine = reader.feed(stream.first(size), [&](message&& each) {
      CHECK_FALSE(got);
      got = std::move(each);
      return true;
    });
    REQUIRE(fine);
    stream = stream.subspan(size);
  }
  return got;
}

constexpr std::size_t sizes[] = {
    0, 1, 4096, frame_limit, frame_limit + 27, 5 * frame_limit + 3, 20 * frame_limit};

}  // namespace

TEST_CASE("a message is the same in whatever pieces its frames arrive", "[cluster]") {
  for (const std::size_t size : sizes) {
    const bytes sent = some_bytes(size);
    const bytes stream = frames_of(sent);
    for (const std::size_t piece : {std::size_t{1000}, std::size_t{65536}, stream.size()}) {
      frame_reader reader(size + 100);
      const auto got = read(reader, stream, piece);
      REQUIRE(got);
      CHECK_FALSE(got->oversize);
      CHECK((got->bytes == sent));
      CHECK(got->id == 7);
      CHECK(got->bytes.capacity() <= size + 100);  // also of memory that is only reserved
      CHECK(reader.idle());
    }
  }
}

TEST_CASE("a message that is too long is dropped, and the next one is read", "[cluster]") {
  for (const std::size_t size : sizes) {
    if (size < 4096) continue;
    frame_reader reader(size - 1);
    const auto got = read(reader, frames_of(some_bytes(size)), 65536);
    REQUIRE(got);
    CHECK(got->oversize);
    CHECK(got->bytes.empty());
    const auto next = read(reader, frames_of(some_bytes(5)), 65536);
    REQUIRE(next);
    CHECK((next->bytes == some_bytes(5)));
  }
}
