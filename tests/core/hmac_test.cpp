// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// SHA-256 with the examples of FIPS 180-4 and RFC 6234, HMAC with those of RFC 4231.

#include <cohort/core/crypto.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string hex(std::span<const std::byte> bytes) {
  const std::string digits = "0123456789abcdef";
  std::string text;
  for (const std::byte one : bytes) {
    text += digits[std::to_integer<unsigned>(one) >> 4U];
    text += digits[std::to_integer<unsigned>(one) & 15U];
  }
  return text;
}

std::string hash(std::string_view text) { return hex(cohort::sha256::of(bytes_of(text))); }

std::string mac(std::string_view key, std::string_view text) {
  return hex(cohort::hmac_sha256(bytes_of(key), bytes_of(text)));
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4 and RFC 6234") {
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string digits;
  for (int i = 0; i < 80; ++i) digits += "01234567";  // TEST4 of RFC 6234: this text ten times
  CHECK(hash(digits) == "594847328451bdfa85056225462cc1d867d877fb388df0ce35f25ab5562bfbb5");
  CHECK(hash("\x19") == "68aa2e2ee5dff96e3355e6c7ee373e3d6a4e17f75f9518d843709c0c9bc3e3d4");
  CHECK(hash("\xe3\xd7\x25\x70\xdc\xdd\x78\x7c\xe3\x88\x7a\xb2\xcd\x68\x46\x52") ==
        "175ee69b02ba9b58e2b0a5fd13819cea573f3940a94f825128cf4209beabb4e8");
}

TEST_CASE("SHA-256 does not depend on how the bytes are cut") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string_view whole = std::string_view(text).substr(0, length);
    for (const std::size_t cut : {std::size_t{1}, std::size_t{63}, std::size_t{64}}) {
      cohort::sha256 hash;
      for (std::size_t at = 0; at < length; at += cut) hash.update(bytes_of(whole.substr(at, cut)));
      CHECK(hash.finish() == cohort::sha256::of(bytes_of(whole)));
    }
  }
}

TEST_CASE("a hash begins anew after finish") {
  cohort::sha256 hash;
  hash.update(bytes_of("something"));
  static_cast<void>(hash.finish());
  hash.update(bytes_of("abc"));
  CHECK(hash.finish() == cohort::sha256::of(bytes_of("abc")));
}

TEST_CASE("HMAC-SHA-256 gives the seven proofs of RFC 4231") {
  CHECK(mac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(mac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(mac(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counted;
  for (int i = 1; i <= 25; ++i) counted += static_cast<char>(i);
  CHECK(mac(counted, std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(mac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32) ==
        "a3b6167473100ee06e0c796c2955552b");
  CHECK(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(mac(std::string(131, '\xaa'),
            "This is a test using a larger than block-size key and a larger than block-size data. "
            "The key needs to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("a text in parts has the proof of the whole") {
  const auto key = bytes_of("key");
  CHECK(cohort::hmac_sha256(key, {bytes_of("one "), bytes_of(""), bytes_of("two")}) ==
        cohort::hmac_sha256(key, bytes_of("one two")));
}

TEST_CASE("digests are equal only if every bit is") {
  const cohort::sha256_digest one = cohort::sha256::of(bytes_of("abc"));
  CHECK(cohort::equal(one, one));
  for (std::size_t bit = 0; bit < one.size() * 8; ++bit) {
    cohort::sha256_digest other = one;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_FALSE(cohort::equal(one, other));
  }
}
