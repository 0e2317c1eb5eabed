// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The serializer: what goes in comes out, and bytes that nobody has written do no harm.

#include "support/catch.hpp"

#include <cohort/core/outcome.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/core/wire_cereal.hpp>
#include <cohort/core/wire_std.hpp>

#include <array>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#if __has_include(<cereal/archives/binary.hpp>)
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#endif

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

struct nothing {
  friend bool operator==(const nothing&, const nothing&) = default;
};

/// An aggregate: its members travel without being named.
struct plain {
  int number = 0;
  std::string text;
  std::array<double, 2> pair{};
  int grid[2][3] = {};
  std::vector<particle> parts;
  nothing empty;
  std::optional<colour> tint;
  friend bool operator==(const plain&, const plain&) = default;
};

struct twelve {
  int a, b, c, d, e, f, g, h, i, j, k, l;
  friend bool operator==(const twelve&, const twelve&) = default;
};
struct thirteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m;
};
struct derived : nothing {
  int a;
};
struct one_member {
  std::vector<int> values;
  friend bool operator==(const one_member&, const one_member&) = default;
};
struct list {
  int value = 0;
  std::unique_ptr<list> next;
};
struct nested {
  std::vector<nested> next;
};

class own_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "test.own"; }
  std::string message(int) const override { return "mine"; }
};

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

TEST_CASE("aggregates travel member by member, with arrays and other aggregates in them") {
  comes_back(plain{});
  comes_back(plain{3, "x", {1, 2}, {{1, 2, 3}, {4, 5, 6}}, {{}, {}}, {}, colour::red});
  comes_back(std::map<int, plain>{{1, {}}, {2, plain{7, {}, {}, {}, {}, {}, {}}}});
  comes_back(twelve{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  comes_back(one_member{{1, 2}});
  comes_back(nothing{});
  CHECK(wire::encode(twelve{}).size() == 12 * sizeof(int));
  CHECK(wire::encode(nothing{}).empty());
  // These need wire_fields.
  CHECK(wire::detail::is_plain_aggregate<twelve>());
  CHECK_FALSE(wire::detail::is_plain_aggregate<thirteen>());
  CHECK_FALSE(wire::detail::is_plain_aggregate<derived>());
  CHECK_FALSE(wire::detail::is_plain_aggregate<std::string>());
}

TEST_CASE("objects without bytes travel in containers, in a bounded number") {
  comes_back(std::vector<nothing>(1000));
  bytes out;
  wire::writer(out).varint((1U << 20U) + 1);
  CHECK(error_of<std::vector<nothing>>(out) == cohort::wire_errc::bad_value);
  // Altogether: else a few bytes could ask for that many of them again and again.
  comes_back(std::vector<std::vector<nothing>>(2, std::vector<nothing>(1U << 19U)));
  const std::vector<std::vector<nothing>> more(3, std::vector<nothing>(1U << 19U));
  CHECK(error_of<std::vector<std::vector<nothing>>>(wire::encode(more)) ==
        cohort::wire_errc::bad_value);
}

TEST_CASE("aggregates within aggregates end at the limit of the depth") {
  CHECK(error_of<nested>(bytes(1000, std::byte{1})) == cohort::wire_errc::too_deep);
  list deep;
  for (int i = 0; i < 100; ++i) {
    auto next = std::make_unique<list>();
    next->next = std::move(deep.next);
    deep.next = std::move(next);
  }
  CHECK(error_of<list>(wire::encode(deep)) == cohort::wire_errc::too_deep);
}

TEST_CASE("more of the standard library comes back") {
  using namespace std::chrono_literals;
  comes_back(std::complex<float>(1, -2));
  comes_back(std::vector<std::complex<double>>{{1, 2}, {3, 4}});
  comes_back(std::bitset<19>(0x5a5a5));
  comes_back(std::bitset<0>());
  comes_back(std::chrono::nanoseconds(-5));
  comes_back(std::chrono::duration<double>(2.5));
  comes_back(std::chrono::system_clock::now());
  comes_back(std::vector<std::byte>(3, std::byte{9}));
  comes_back(std::vector<std::array<float, 3>>{{1, 2, 3}, {4, 5, 6}});
  comes_back(std::vector<bool>{true, false, true});
  comes_back(std::unordered_map<std::string, int>{{"a", 1}, {"b", 2}});
  using either = std::variant<std::monostate, int, std::string, std::vector<int>>;
  for (const either& one : {either(), either(4), either("x"), either(std::vector{1, 2})}) {
    comes_back(one);
  }
  CHECK(error_of<either>({std::byte{4}}) == cohort::wire_errc::bad_value);
  CHECK(error_of<either>({}) == cohort::wire_errc::truncated);

  const auto pointer = wire::decode<std::unique_ptr<int>>(wire::encode(std::make_unique<int>(5)));
  REQUIRE(pointer != nullptr);
  CHECK(*pointer == 5);
  CHECK(wire::decode<std::unique_ptr<int>>(wire::encode(std::unique_ptr<int>())) == nullptr);
  const auto moved = wire::decode<std::vector<std::unique_ptr<int>>>(wire::encode([] {
    std::vector<std::unique_ptr<int>> values(2);
    values[1] = std::make_unique<int>(6);
    return values;
  }()));
  REQUIRE(moved.size() == 2);
  CHECK(*moved[1] == 6);
}

TEST_CASE("complex numbers have the same bytes alone and in a vector") {
  const std::complex<double> one(1, 2);
  bytes expected{std::byte{1}};
  const bytes alone = wire::encode(one);
  expected.insert(expected.end(), alone.begin(), alone.end());
  CHECK(wire::encode(std::vector{one}) == expected);
}

TEST_CASE("error codes come back with their category, or with its name if nobody knows it") {
  comes_back(std::error_code());
  comes_back(std::make_error_code(std::errc::no_such_file_or_directory));
  comes_back(std::error_code(ENOENT, std::system_category()));
  comes_back(std::error_code(cohort::errc::stalled));
  comes_back(std::error_code(cohort::wire_errc::too_deep));
  comes_back(std::error_code(-3, std::system_category()));

  static const own_category own;
  const bytes out = wire::encode(std::error_code(7, own));
  const auto before = wire::decode<std::error_code>(out);
  CHECK(before.value() == 7);
  CHECK(before.category() != own);
  CHECK(std::string(before.category().name()) == "test.own");
  CHECK(before.message() == "error 7 of category test.own");
  CHECK(wire::decode<std::error_code>(out) == before);
  cohort::register_category(own);
  CHECK(wire::decode<std::error_code>(out) == std::error_code(7, own));
  CHECK(&cohort::category_named("cohort") == &cohort::cohort_category());
}

#if __has_include(<cereal/archives/binary.hpp>)

namespace cereal_test {

/// Knows cereal and nothing of cohort.
class measurement {
 public:
  measurement() = default;
  measurement(std::string name, std::vector<double> values)
      : name_(std::move(name)), values_(std::move(values)) {}
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name_, values_);
  }
  friend bool operator==(const measurement&, const measurement&) = default;

 private:
  std::string name_;
  std::vector<double> values_;
};

}  // namespace cereal_test

template <>
inline constexpr bool cohort::wire::by_cereal<cereal_test::measurement> = true;

TEST_CASE("a type that knows cereal travels by it when it is asked to") {
  using cereal_test::measurement;
  const measurement one("x", {1, 2, 3});
  comes_back(one);
  comes_back(std::vector<measurement>{one, {}, one});
  const bytes whole = wire::encode(one);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(error_of<measurement>(part).category() == cohort::wire_category());
  }
  const bytes inner(whole.begin() + 1, whole.end());  // without its length
  for (std::size_t size = 0; size < inner.size(); ++size) {
    bytes part;
    wire::writer out(part);
    out.varint(size);
    out.raw(std::span(inner).first(size));
    CHECK(error_of<measurement>(part) == cohort::wire_errc::bad_value);
  }
  bytes longer;
  wire::writer out(longer);
  out.varint(inner.size() + 1);
  out.raw(inner);
  out.byte(0);
  CHECK(error_of<measurement>(longer) == cohort::wire_errc::trailing);
}

#endif
