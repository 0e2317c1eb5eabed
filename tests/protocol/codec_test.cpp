// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Messages as bytes.

#include "support/catch.hpp"

#include "protocol/codec_support.hpp"

#include <cohort/protocol/codec.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/message_reader.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace protocol_codec;

/// The code of the error that reading throws, or none.
std::error_code error_of(const bytes& message) {
  try {
    static_cast<void>(copy_of(message));
  } catch (const protocol_error& problem) {
    return problem.code();
  }
  return {};
}

bool is(const std::error_code& error, fault code) {
  return error.category() == protocol_category() && error.value() == static_cast<int>(code);
}

}  // namespace

TEST_CASE("every part of a message on its way up comes back from its bytes") {
  CHECK(copy_of(sample_up()) == sample_up());
}

TEST_CASE("every part of a message on its way down comes back from its bytes") {
  CHECK(copy_of(sample_down()) == sample_down());
}

TEST_CASE("a message cut at any byte is malformed or ends between two parts") {
  for (const bytes& whole : {sample_up(), sample_down()}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const bytes some(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const std::error_code error = error_of(some);
      if (error) {
        CHECK(is(error, fault::malformed));
      } else {
        CHECK(copy_of(some) == some);
      }
    }
  }
}

TEST_CASE("flipped bits are another message or a named error, and cost little memory") {
  for (const bytes& whole : {sample_up(), sample_down()}) {
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      bytes other = whole;
      other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const std::error_code error = error_of(other);
      if (error) CHECK((is(error, fault::malformed) || is(error, fault::wrong_version)));
    }
  }
}

TEST_CASE("several flipped bits at random do no harm either") {
  std::uint64_t state = 42;
  const auto random = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state >> 33U);
  };
  const std::vector<bytes> samples{sample_up(), sample_down()};
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    bytes other = samples[random() % 2];
    for (std::size_t flips = 1 + random() % 8; flips > 0; --flips) {
      const std::size_t bit = random() % (other.size() * 8);
      other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    if (random() % 4 == 0) other.resize(random() % other.size());
    if (error_of(other)) ++refused;
  }
  CHECK(refused > 1000);
}

TEST_CASE("another version is told from a malformed message") {
  bytes message = sample_up();
  message[0] = std::byte{99};
  CHECK(is(error_of(message), fault::wrong_version));
  CHECK(is(error_of({}), fault::malformed));
}

TEST_CASE("ids are sent as bits or as differences, whichever is smaller") {
  const auto message_of = [](const std::vector<std::uint32_t>& ids) {
    bytes out;
    cohort::wire::writer to(out);
    id_block block;
    for (const std::uint32_t id : ids) block.insert(id);
    block.write(to);
    std::vector<std::uint32_t> back;
    cohort::wire::reader in(out);
    CHECK(in.byte() == static_cast<std::uint8_t>(part::ids));
    id_block::read(in, [&back](std::uint32_t id) { back.push_back(id); });
    CHECK(in.ok());
    CHECK(in.left() == 0);
    std::vector<std::uint32_t> sorted = ids;
    std::sort(sorted.begin(), sorted.end());
    CHECK(back == sorted);
    return out.size();
  };
  CHECK(message_of({7}) <= 4);
  CHECK(message_of({100'000}) <= 6);
  CHECK(message_of({5, 3, 1'000'000}) <= 9);
  std::vector<std::uint32_t> dense;
  for (std::uint32_t id = 4000; id < 5000; ++id) dense.push_back(id);
  CHECK(message_of(dense) < 140);  // 125 bytes of bits
}

TEST_CASE("a pack of cached operations takes about a byte for each") {
  std::vector<elected> pack(100);
  for (std::uint32_t i = 0; i < 100; ++i) pack[i].entry.id = 40 + i;
  bytes out;
  cohort::wire::writer to(out);
  put_execute(to, pack);
  CHECK(out.size() < 106);
}
