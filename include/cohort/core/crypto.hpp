// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Random bytes of the system; SHA-256 and HMAC-SHA-256, by which two processes prove to each
/// other that they know one secret.
///
/// The hash is after FIPS 180-4 and RFC 2104, in portable code without tables but the 64 constants.
/// It is made for tokens, tables and executables, not for bulk data. `<random>` is not used, for it
/// costs every user a tenth of a second.

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <system_error>

namespace cohort {

/// Bytes that nobody can guess, for tokens and for what must differ between processes. Any thread.
/// Throws std::system_error where the system has none. *Cost*: a system call.
template <std::size_t N>
[[nodiscard]] std::array<std::byte, N> random_bytes() {
  std::array<std::byte, N> out;
  static_assert(N <= 256);  // what getentropy gives at once
  if (::getentropy(out.data(), N) != 0) {
    throw std::system_error(errno, std::generic_category(), "getentropy");
  }
  return out;
}

/// The same as a number.
[[nodiscard]] inline std::uint64_t random_number() {
  return std::bit_cast<std::uint64_t>(random_bytes<sizeof(std::uint64_t)>());
}

/// What a hash or a proof looks like: 32 bytes, in the order in which they are written down.
using sha256_digest = std::array<std::byte, 32>;

/// SHA-256 of bytes that arrive in pieces. Allocates nothing; O(bytes). Up to 2^61 - 1 bytes.
class sha256 {
 public:
  void update(std::span<const std::byte> bytes) noexcept;
  /// The digest of all bytes so far. The object then begins anew.
  [[nodiscard]] sha256_digest finish() noexcept;

  /// Of bytes that are all there.
  [[nodiscard]] static sha256_digest of(std::span<const std::byte> bytes) noexcept {
    sha256 hash;
    hash.update(bytes);
    return hash.finish();
  }

 private:
  static constexpr std::size_t block_size = 64;
  friend sha256_digest hmac_sha256(std::span<const std::byte>,
                                   std::initializer_list<std::span<const std::byte>>) noexcept;

  void block(const std::byte* bytes) noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_size> rest_{};
  std::uint64_t size_ = 0;
};

/// HMAC-SHA-256 of the parts one after the other. Their lengths are not part of it: where two ways
/// to cut a text must differ, put the lengths into the text.
[[nodiscard]] sha256_digest hmac_sha256(
    std::span<const std::byte> key,
    std::initializer_list<std::span<const std::byte>> parts) noexcept;
[[nodiscard]] inline sha256_digest hmac_sha256(std::span<const std::byte> key,
                                               std::span<const std::byte> text) noexcept {
  return hmac_sha256(key, {text});
}

/// Compares in a time that does not depend on where the digests differ, so that a stranger cannot
/// find a proof byte by byte.
[[nodiscard]] inline bool equal(const sha256_digest& left, const sha256_digest& right) noexcept {
  volatile unsigned difference = 0;  // volatile: a compiler may otherwise leave the loop early
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference = difference | std::to_integer<unsigned>(left[i] ^ right[i]);
  }
  return difference == 0;
}

namespace detail {

inline constexpr std::array<std::uint32_t, 64> sha256_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

[[nodiscard]] constexpr std::uint32_t big_endian_word(const std::byte* bytes) noexcept {
  return std::to_integer<std::uint32_t>(bytes[0]) << 24U |
         std::to_integer<std::uint32_t>(bytes[1]) << 16U |
         std::to_integer<std::uint32_t>(bytes[2]) << 8U | std::to_integer<std::uint32_t>(bytes[3]);
}

}  // namespace detail

inline void sha256::block(const std::byte* bytes) noexcept {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t) w[t] = detail::big_endian_word(bytes + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t a = w[t - 15];
    const std::uint32_t b = w[t - 2];
    w[t] = w[t - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) + w[t - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + detail::sha256_constants[t] + w[t];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

inline void sha256::update(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::size_t held = size_ % block_size;
  size_ += bytes.size();
  if (held != 0) {
    const std::size_t taken = bytes.size() < block_size - held ? bytes.size() : block_size - held;
    std::memcpy(rest_.data() + held, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    if (held + taken < block_size) return;
    block(rest_.data());
  }
  for (; bytes.size() >= block_size; bytes = bytes.subspan(block_size)) block(bytes.data());
  if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
}

inline sha256_digest sha256::finish() noexcept {
  const std::uint64_t bits = size_ * 8;
  // A one, zeros up to eight bytes before the end of a block, the number of bits.
  std::array<std::byte, block_size + 8> padding{std::byte{0x80}};
  const std::size_t held = size_ % block_size;
  const std::size_t zeros = (held < 56 ? 56 : 56 + block_size) - held;
  for (std::size_t i = 0; i < 8; ++i) {
    padding[zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  }
  update(std::span(padding).first(zeros + 8));

  sha256_digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  *this = sha256();
  return digest;
}

inline sha256_digest hmac_sha256(std::span<const std::byte> key,
                                 std::initializer_list<std::span<const std::byte>> parts) noexcept {
  std::array<std::byte, sha256::block_size> padded{};
  if (key.size() > padded.size()) {
    const sha256_digest shorter = sha256::of(key);
    std::memcpy(padded.data(), shorter.data(), shorter.size());
  } else if (!key.empty()) {
    std::memcpy(padded.data(), key.data(), key.size());
  }
  sha256 hash;
  for (std::byte& one : padded) one ^= std::byte{0x36};
  hash.update(padded);
  for (const auto part : parts) hash.update(part);
  const sha256_digest inner = hash.finish();
  for (std::byte& one : padded) one ^= std::byte{0x36} ^ std::byte{0x5c};
  hash.update(padded);
  hash.update(inner);
  return hash.finish();
}

}  // namespace cohort
