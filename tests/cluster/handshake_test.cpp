// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The handshake, said by hand: who knows the token is believed, and nobody else.

#include <cohort/cluster/link/handshake.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/catch.hpp"

namespace cluster = cohort::cluster;
using cluster::accepting_side;
using cluster::connecting_side;
using cluster::purpose;

namespace {

cluster::launch_token token_of(unsigned char first) {
  cluster::launch_token token{};
  for (std::size_t i = 0; i < token.size(); ++i) {
    token[i] = static_cast<std::byte>(first + 17 * i);
  }
  return token;
}

cluster::greeting control_greeting() {
  cluster::greeting hello;
  hello.purpose = purpose::control;
  hello.session = cohort::random_bytes<cluster::session_size>();
  return hello;
}

template <std::size_t N>
void flip(std::array<std::byte, N>& text, std::size_t bit) {
  text[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

/// What comes out of a whole exchange in which one bit has been changed on its way.
struct changed {
  int message = -1;  ///< 0 greeting, 1 reply, 2 proof; -1 none
  std::size_t bit = 0;
};
struct judgement {
  bool understood = false;
  bool connecting_trusts = false;
  bool accepting_trusts = false;
};

judgement exchange(const cluster::launch_token& ours, const cluster::launch_token& theirs,
                   const changed& change = {}) {
  judgement all;
  const connecting_side one(theirs, control_greeting());
  accepting_side other;
  auto greeting = one.greeting();
  if (change.message == 0) flip(greeting, change.bit);
  all.understood = other.understands(greeting);
  auto reply = other.reply(ours);
  if (change.message == 1) flip(reply, change.bit);
  all.connecting_trusts = one.trusts(reply);
  auto proof = one.proof(reply);
  if (change.message == 2) flip(proof, change.bit);
  all.accepting_trusts = other.trusts(ours, proof);
  return all;
}

}  // namespace

TEST_CASE("a token survives its text") {
  const auto token = token_of(3);
  const std::string text = cluster::to_text(token);
  CHECK(text.size() == 32);
  CHECK(text.substr(0, 6) == "031425");
  cluster::launch_token read{};
  REQUIRE(cluster::parse_token(text, read));
  CHECK(read == token);
  const auto random = cohort::random_bytes<16>();
  REQUIRE(cluster::parse_token(cluster::to_text(random), read));
  CHECK(read == random);
}

TEST_CASE("what is no token is refused") {
  const std::string good = cluster::to_text(token_of(1));
  cluster::launch_token read{};
  CHECK_FALSE(cluster::parse_token("", read));
  CHECK_FALSE(cluster::parse_token(good.substr(1), read));
  CHECK_FALSE(cluster::parse_token(good + "0", read));
  CHECK_FALSE(cluster::parse_token(good + good, read));
  for (std::size_t place = 0; place < good.size(); ++place) {
    for (const char wrong : {'g', 'A', ' ', '\0', '/', ':', '`'}) {
      std::string text = good;
      text[place] = wrong;
      CHECK_FALSE(cluster::parse_token(text, read));
    }
  }
}

TEST_CASE("who knows the token is believed") {
  for (const purpose what :
       {purpose::control, purpose::standard_output, purpose::standard_error, purpose::heartbeat}) {
    cluster::greeting hello;
    hello.purpose = what;
    hello.session = cohort::random_bytes<cluster::session_size>();
    const auto token = cohort::random_bytes<16>();
    const connecting_side one(token, hello);
    accepting_side other;
    REQUIRE(other.understands(one.greeting()));
    CHECK(other.hello().purpose == what);
    CHECK(other.hello().session == hello.session);
    const auto reply = other.reply(token);
    CHECK(one.trusts(reply));
    CHECK(other.trusts(token, one.proof(reply)));
  }
}

TEST_CASE("neither side believes one who has another token") {
  const auto good = exchange(token_of(1), token_of(1));
  CHECK(good.understood);
  CHECK(good.connecting_trusts);
  CHECK(good.accepting_trusts);
  const auto bad = exchange(token_of(1), token_of(2));
  CHECK(bad.understood);
  CHECK_FALSE(bad.connecting_trusts);
  CHECK_FALSE(bad.accepting_trusts);
  for (std::size_t bit = 0; bit < 128; ++bit) {
    auto near = token_of(1);
    flip(near, bit);
    const auto all = exchange(token_of(1), near);
    CHECK_FALSE(all.connecting_trusts);
    CHECK_FALSE(all.accepting_trusts);
  }
}

TEST_CASE("one changed bit of the exchange is enough") {
  const auto token = token_of(9);
  for (std::size_t bit = 0; bit < 8 * sizeof(cluster::greeting_bytes); ++bit) {
    const auto all = exchange(token, token, {0, bit});
    CHECK_FALSE(all.connecting_trusts);
    CHECK_FALSE(all.accepting_trusts);
    // Magic, version and zeros are looked at; what else is changed is found by the proof.
    if (bit < 64 || (bit >= 72 && bit < 128)) CHECK_FALSE(all.understood);
    if (bit >= 128) CHECK(all.understood);
  }
  for (std::size_t bit = 0; bit < 8 * sizeof(cluster::reply_bytes); ++bit) {
    const auto all = exchange(token, token, {1, bit});
    CHECK_FALSE(all.connecting_trusts);
    // The one who connects ends it here. If it did not, its proof would be for another nonce.
    if (bit < 8 * cluster::nonce_size) CHECK_FALSE(all.accepting_trusts);
  }
  for (std::size_t bit = 0; bit < 8 * sizeof(cluster::proof_bytes); ++bit) {
    const auto all = exchange(token, token, {2, bit});
    CHECK(all.connecting_trusts);
    CHECK_FALSE(all.accepting_trusts);
  }
}

TEST_CASE("what was recorded is of no use") {
  const auto token = token_of(5);
  const connecting_side one(token, control_greeting());
  accepting_side first;
  REQUIRE(first.understands(one.greeting()));
  const auto reply = first.reply(token);
  const auto proof = one.proof(reply);
  REQUIRE(first.trusts(token, proof));
  // The same greeting and proof again: the nonce is another one.
  accepting_side second;
  REQUIRE(second.understands(one.greeting()));
  const auto second_reply = second.reply(token);
  CHECK(second_reply != reply);
  CHECK_FALSE(second.trusts(token, proof));
  // A recorded reply for another who connects.
  const connecting_side another(token, control_greeting());
  CHECK(another.greeting() != one.greeting());
  CHECK_FALSE(another.trusts(reply));
  // A proof cannot be had by sending back what the other side has said.
  cluster::proof_bytes echoed;
  std::memcpy(echoed.data(), reply.data() + cluster::nonce_size, echoed.size());
  CHECK_FALSE(first.trusts(token, echoed));
}

TEST_CASE("greetings of another kind are not understood") {
  const connecting_side one(token_of(1), control_greeting());
  accepting_side other;
  const auto with = [&](std::size_t place, unsigned value) {
    auto text = one.greeting();
    text[place] = static_cast<std::byte>(value);
    return other.understands(text);
  };
  CHECK(other.understands(one.greeting()));
  CHECK_FALSE(with(0, 'C'));
  CHECK_FALSE(with(7, 0));  // the version
  CHECK_FALSE(with(7, 2));
  for (unsigned what = 0; what < 256; ++what) {
    CHECK(with(8, what) == (what >= 1 && what <= static_cast<unsigned>(purpose::heartbeat)));
  }
  for (std::size_t place = 9; place < 16; ++place) CHECK_FALSE(with(place, 1));
  CHECK_FALSE(other.understands(cluster::greeting_bytes{}));
}
