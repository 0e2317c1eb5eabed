// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The serializer: what goes in comes out, and bytes that nobody has written do no harm.

#include "support/catch.hpp"

#include <cohort/core/wire.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

namespace wire = cohort::wire;
using bytes = std::vector<std::byte>;

enum class colour : std::uint16_t { red = 3, blue = 700 };

struct particle {
  std::array<double, 3> position{};
  float mass = 0;
  std::optional<std::string> name;
  friend bool operator==(const particle&, const particle&) = default;
};
template <class Archive>
void wire_fields(Archive& archive, particle& p) {
  archive(p.position, p.mass, p.name);
}

struct chain {
  std::vector<chain> next;
};
template <class Archive>
void wire_fields(Archive& archive, chain& one) {
  archive(one.next);
}

template <class T>
void comes_back(const T& value) {
  CHECK(wire::decode<T>(wire::encode(value)) == value);
}

template <class T>
std::error_code error_of(const bytes& from) {
  try {
    static_cast<void>(wire::decode<T>(from));
  } catch (const std::system_error& problem) {
    return problem.code();
  }
  return {};
}

using everything = std::tuple<std::map<std::string, std::vector<particle>>, std::set<int>, colour,
                              std::pair<bool, std::int64_t>, std::vector<std::uint16_t>>;

everything sample() {
  return {{{"a", {{{1, 2, 3}, 4, "x"}, {}}}, {"bb", {}}},
          {3, -1, 1 << 30},
          colour::blue,
          {true, std::numeric_limits<std::int64_t>::min()},
          {1, 2, 65535}};
}

}  // namespace

TEST_CASE("values of all kinds come back from their bytes") {
  comes_back(true);
  comes_back('x');
  comes_back(-1.5F);
  comes_back(std::numeric_limits<double>::infinity());
  comes_back(std::uint64_t{0xfedcba9876543210U});
  comes_back(colour::red);
  comes_back(std::string("with \0 within", 12));
  comes_back(std::vector<double>{});
  comes_back(std::vector<std::string>{"", "a"});
  comes_back(std::optional<int>{});
  comes_back(std::optional<int>{7});
  comes_back(std::array<std::byte, 2>{std::byte{1}, std::byte{2}});
  comes_back(sample());
}

TEST_CASE("numbers are little-endian and small varints are one byte") {
  CHECK(wire::encode(std::uint32_t{0x01020304}) ==
        bytes{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, UINT64_MAX}) {
    bytes out;
    wire::writer(out).varint(value);
    wire::reader in(out);
    CHECK(in.varint() == value);
    CHECK(in.ok());
    CHECK(in.left() == 0);
    CHECK((out.size() == 1) == (value < 128));
  }
  for (const std::int64_t value : {INT64_MIN, std::int64_t{-1}, std::int64_t{0}, INT64_MAX}) {
    bytes out;
    wire::writer(out).signed_varint(value);
    wire::reader in(out);
    CHECK(in.signed_varint() == value);
  }
}

TEST_CASE("bytes that end too early are a named error at every length") {
  const bytes whole = wire::encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::error_code error = error_of<everything>(part);
    CHECK((error == cohort::wire_errc::truncated || error == cohort::wire_errc::too_long));
    CHECK(std::string(error.category().name()) == "cohort.wire");
  }
  bytes longer = whole;
  longer.push_back({});
  CHECK(error_of<everything>(longer) == cohort::wire_errc::trailing);
}

TEST_CASE("a length that the bytes cannot hold is refused before anything is allocated") {
  bytes out;
  wire::writer(out).varint(std::uint64_t{1} << 60U);
  out.resize(out.size() + 100);
  CHECK(error_of<std::vector<double>>(out) == cohort::wire_errc::too_long);
  CHECK(error_of<std::vector<std::string>>(out) == cohort::wire_errc::too_long);
  CHECK(error_of<std::string>(out) == cohort::wire_errc::too_long);
  CHECK(error_of<bool>({std::byte{2}}) == cohort::wire_errc::bad_value);
  CHECK(error_of<std::string>(bytes(11, std::byte{0xff})) == cohort::wire_errc::bad_value);
}

TEST_CASE("objects within objects end at a limit") {
  bytes deep(1000, std::byte{1});  // each has one below it
  CHECK(error_of<chain>(deep) == cohort::wire_errc::too_deep);
}

TEST_CASE("flipped bits give another value or an error, and nothing else") {
  const bytes whole = wire::encode(sample());
  std::size_t sound = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    bytes other = whole;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    if (!error_of<everything>(other)) ++sound;
  }
  CHECK(sound > 0);
  CHECK(sound < whole.size() * 8);
}
