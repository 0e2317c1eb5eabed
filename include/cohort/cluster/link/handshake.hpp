// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How two processes of one launch prove to each other that they know its token.
///
/// Pure. The one that connects sends a `greeting`; the other answers with a `reply`, which proves
/// that it knows the token; the first sends its `proof`. All sizes are fixed, and nothing that a
/// stranger sends is looked at any further than that. The proofs are HMAC-SHA-256 (RFC 2104) over
/// both nonces, so one that was recorded is of no use. What follows is not encrypted: this is for
/// networks whose other users are trusted not to change packets.

#include <cohort/core/crypto.hpp>
#include <cohort/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace cohort::cluster {

/// The secret of one launch: 128 bits. Travels in the environment, as hexadecimal digits.
using launch_token = std::array<std::byte, 16>;

/// What a connection is for.
enum class purpose : std::uint8_t { control = 1, standard_output, standard_error, heartbeat };

inline constexpr std::size_t nonce_size = 32;
inline constexpr std::size_t session_size = 16;

/// Sent by who connects: magic (8), purpose (1), zeros (7), session (16), nonce (32).
using greeting_bytes = std::array<std::byte, 64>;
/// The answer: nonce (32), proof (32).
using reply_bytes = std::array<std::byte, 64>;
using proof_bytes = sha256_digest;

struct greeting {
  cluster::purpose purpose{};
  std::array<std::byte, session_size> session{};  ///< random: the connections of one process
};

/// How a handshake ends: its last byte.
enum class handshake_result : std::uint8_t {
  accepted = 0,
  wrong_token,  ///< the proof does not fit the token
  not_expected  ///< nobody waits for a connection of that purpose or session
};

namespace detail {
inline constexpr std::string_view magic("cohort\0\1", 8);  // the last byte is the version
inline constexpr std::string_view hexadecimal = "0123456789abcdef";
}  // namespace detail

[[nodiscard]] inline std::string to_text(const launch_token& token) {
  std::string text;
  for (const std::byte each : token) {
    text += detail::hexadecimal[std::to_integer<unsigned>(each) >> 4U];
    text += detail::hexadecimal[std::to_integer<unsigned>(each) & 15U];
  }
  return text;
}

/// False if the text is no token.
[[nodiscard]] inline bool parse_token(std::string_view text, launch_token& token) noexcept {
  if (text.size() != 2 * token.size()) return false;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const auto high = detail::hexadecimal.find(text[2 * i]);
    const auto low = detail::hexadecimal.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    token[i] = static_cast<std::byte>(high << 4U | low);
  }
  return true;
}

namespace detail {

[[nodiscard]] inline proof_bytes proof(const launch_token& token, std::string_view side,
                                       const greeting_bytes& greeting,
                                       std::span<const std::byte> nonce) {
  std::array<std::byte, 16 + sizeof(greeting_bytes) + nonce_size> text{};
  std::memcpy(text.data(), side.data(), side.size());
  std::memcpy(text.data() + 16, greeting.data(), greeting.size());
  std::memcpy(text.data() + 16 + greeting.size(), nonce.data(), nonce_size);
  return hmac_sha256(token, text);
}

}  // namespace detail

/// The side that connects.
class connecting_side {
 public:
  connecting_side(const launch_token& token, const greeting& hello) : token_(token) {
    const auto nonce = random_bytes<nonce_size>();
    std::memcpy(greeting_.data(), detail::magic.data(), 8);
    greeting_[8] = static_cast<std::byte>(hello.purpose);
    std::memcpy(greeting_.data() + 16, hello.session.data(), session_size);
    std::memcpy(greeting_.data() + 32, nonce.data(), nonce_size);
  }
  [[nodiscard]] const greeting_bytes& greeting() const noexcept { return greeting_; }
  /// Whether the other side knows the token.
  [[nodiscard]] bool trusts(const reply_bytes& reply) const {
    proof_bytes proof;
    std::memcpy(proof.data(), reply.data() + nonce_size, proof.size());
    return equal(proof, detail::proof(token_, "cohort accepts", greeting_,
                                      std::span(reply).first(nonce_size)));
  }
  [[nodiscard]] proof_bytes proof(const reply_bytes& reply) const {
    return detail::proof(token_, "cohort connects", greeting_, std::span(reply).first(nonce_size));
  }

 private:
  launch_token token_;
  greeting_bytes greeting_{};
};

/// The side that accepts.
class accepting_side {
 public:
  /// Takes a greeting. False if it is none, and nothing is to be answered.
  [[nodiscard]] bool understands(const greeting_bytes& greeting) noexcept {
    greeting_ = greeting;
    for (std::size_t i = 9; i < 16; ++i) {
      if (greeting[i] != std::byte{0}) return false;
    }
    hello_.purpose = static_cast<purpose>(greeting[8]);
    std::memcpy(hello_.session.data(), greeting.data() + 16, session_size);
    return std::memcmp(greeting.data(), detail::magic.data(), 8) == 0 &&
           hello_.purpose >= purpose::control && hello_.purpose <= purpose::heartbeat;
  }
  [[nodiscard]] const cluster::greeting& hello() const noexcept { return hello_; }

  [[nodiscard]] reply_bytes reply(const launch_token& token) {
    nonce_ = random_bytes<nonce_size>();
    const proof_bytes proof = detail::proof(token, "cohort accepts", greeting_, nonce_);
    reply_bytes out;
    std::memcpy(out.data(), nonce_.data(), nonce_size);
    std::memcpy(out.data() + nonce_size, proof.data(), proof.size());
    return out;
  }
  [[nodiscard]] bool trusts(const launch_token& token, const proof_bytes& proof) const {
    return equal(proof, detail::proof(token, "cohort connects", greeting_, nonce_));
  }

 private:
  greeting_bytes greeting_{};
  cluster::greeting hello_;
  std::array<std::byte, nonce_size> nonce_{};
};

}  // namespace cohort::cluster
