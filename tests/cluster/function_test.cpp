// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Remote functions without a wire between: arguments and results as bytes, and what happens to
// bytes that are not arguments.

#include <cohort/cluster/function.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "support/catch.hpp"

// Stands for the real one, which this test does not include.
class cohort::cluster::call_context {
 public:
  int rank = 0;
};

namespace {

namespace cluster = cohort::cluster;
using bytes = std::vector<std::byte>;
using cluster::call_context;
using cluster::encode_arguments;

struct point {
  double x = 0;
  double y = 0;
  friend bool operator==(const point&, const point&) = default;
};

/// The bytes of a call, run by what the table has.
cluster::payload answer(cluster::runner* runner, cluster::payload message) {
  asio::io_context io;
  call_context context;
  context.rank = 3;
  cluster::payload result;
  std::exception_ptr error;
  asio::co_spawn(io, runner(context, std::move(message)),
                 [&](std::exception_ptr problem, cluster::payload value) {
                   error = problem;
                   result = std::move(value);
                 });
  io.run();
  if (error != nullptr) std::rethrow_exception(error);
  return result;
}
cluster::payload answer(cluster::plain_runner* runner, cluster::payload message) {
  call_context context;
  context.rank = 3;
  return runner(context, std::move(message));
}

/// A call from the arguments to the result, by way of the function's number.
template <auto F, class... Args>
auto call(Args&&... arguments) {
  const auto& table = cohort::function_table::instance();
  cluster::payload message = encode_arguments<F>(std::forward<Args>(arguments)...);
  const std::size_t number = cluster::remote<F>::index();
  auto* const coroutine = table.find<cluster::runner>(number);
  cluster::payload result =
      coroutine != nullptr ? answer(coroutine, std::move(message))
                           : answer(table.at<cluster::plain_runner>(number), std::move(message));
  return cluster::decode_result<typename cluster::callee<F>::result>(std::move(result), "it");
}

double half(double value) { return value / 2; }
int add(int left, int right) { return left + right; }
void nothing() {}
int rank_of(call_context& context) { return context.rank; }
int rank_plus(call_context& context, int value) { return context.rank + value; }
std::string join(const std::string& left, std::string&& right, std::string_view third) {
  std::string all = left;
  return all.append(right).append(third);
}
double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}
double mixed(char, std::span<const double> values, std::string_view text,
             std::span<const std::uint16_t> shorts) {
  return sum(values) + static_cast<double>(text.size()) + static_cast<double>(shorts.size());
}
float length(std::span<const float, 3> v) { return v[0] + v[1] + v[2]; }
std::unique_ptr<int> increased(std::unique_ptr<int> value) {
  ++*value;
  return value;
}
point mirrored(point p, std::optional<point> around, const std::map<int, point>& others) {
  if (around) p = {2 * around->x - p.x, 2 * around->y - p.y};
  p.x += static_cast<double>(others.size());
  return p;
}
template <class T>
T largest(const std::vector<T>& values) {
  return values.empty() ? T() : values.back();
}
int never_throws(int value) noexcept { return value; }
void throws(int value) { throw std::out_of_range("value " + std::to_string(value)); }

asio::awaitable<int> later(call_context& context, int value) {
  co_await asio::post(asio::use_awaitable);
  co_return context.rank* value;
}
asio::awaitable<void> later_nothing() { co_await asio::post(asio::use_awaitable); }
// References to what was stored must live until the coroutine has ended.
asio::awaitable<std::string> later_views(const std::string& text, std::span<const int> values,
                                         std::string_view view, std::string&& moved) {
  for (int i = 0; i < 3; ++i) co_await asio::post(asio::use_awaitable);
  std::string all = text;
  for (const int value : values) all.append(std::to_string(value));
  co_return all.append(view).append(moved);
}
asio::awaitable<std::unique_ptr<int>> later_pointer(std::unique_ptr<int> value) {
  co_await asio::post(asio::use_awaitable);
  co_return value;
}
asio::awaitable<int> later_throws() {
  co_await asio::post(asio::use_awaitable);
  throw std::runtime_error("late");
}

/// What the text of the error is, and its code.
std::pair<std::string, std::error_code> error_of(auto&& function) {
  try {
    function();
  } catch (const cohort::error& problem) {
    return {problem.what(), problem.code()};
  }
  return {};
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const double* seen_at = nullptr;
double remembers(std::span<const double> values) {
  seen_at = values.data();
  return sum(values);
}
double sum_of_vector(const std::vector<double>& values) { return sum(values); }
std::vector<double> passed_on(std::vector<double> values) { return values; }

}  // namespace

TEST_CASE("a call returns what the function returns") {
  CHECK(call<&half>(3.0) == 1.5);
  CHECK(call<&add>(2, 3) == 5);
  CHECK(call<&never_throws>(2) == 2);
  CHECK(call<&largest<int>>(std::vector{1, 2}) == 2);
  CHECK(call<&largest<std::string>>(std::vector<std::string>{"a"}) == "a");
  call<&nothing>();
  CHECK(call<[](int value) { return value * 10; }>(4) == 40);
  CHECK(call<add>(2, 3) == 5);
  CHECK(call<&mirrored>(point{1, 2}, point{0, 0}, std::map<int, point>{{1, {}}}) == point{0, -2});
}

TEST_CASE("arguments travel as the types that the function declares") {
  CHECK(call<&half>(3) == 1.5);
  CHECK(call<&half>(3.0F) == 1.5);
  CHECK(encode_arguments<&half>(3).bytes == encode_arguments<&half>(3.0).bytes);
  CHECK(call<&add>('\1', 2L) == 3);
  CHECK(call<&join>("a", "b", "c") == "abc");
  const std::string text = "x";
  CHECK(call<&join>(text, text, text) == "xxx");
  CHECK(text == "x");
  CHECK(call<&sum>(std::vector<double>{1, 2, 3}) == 6);
  CHECK(call<&sum>(std::array<double, 2>{1, 2}) == 3);
  const double plain[] = {1, 2};
  CHECK(call<&sum>(plain) == 3);
  CHECK(call<&sum>(std::vector<double>()) == 0);
  CHECK(call<&length>(std::array<float, 3>{1, 2, 3}) == 6);
  CHECK(call<&mirrored>(point{1, 2}, std::nullopt, std::map<int, point>()) == point{1, 2});
}

TEST_CASE("a callee may ask for its context, which is no argument") {
  CHECK(call<&rank_of>() == 3);
  CHECK(call<&rank_plus>(4) == 7);
  CHECK(cluster::callee<&rank_plus>::arity == 1);
  CHECK(cluster::callee<&rank_plus>::takes_context);
  CHECK_FALSE(cluster::callee<&add>::takes_context);
  CHECK(call<[](call_context& context, int value) { return context.rank - value; }>(1) == 2);
  CHECK(call<[](const call_context& context) { return context.rank; }>() == 3);
}

TEST_CASE("a coroutine is awaited, and its arguments live until it ends") {
  CHECK(cluster::callee<&later>::is_coroutine);
  CHECK(std::is_same_v<cluster::callee<&later>::result, int>);
  CHECK(call<&later>(5) == 15);
  call<&later_nothing>();
  CHECK(call<&later_views>(std::string(40, 'a'), std::vector{1, 2}, "view", std::string(40, 'b')) ==
        std::string(40, 'a') + "12view" + std::string(40, 'b'));
  CHECK(*call<&later_pointer>(std::make_unique<int>(8)) == 8);
  CHECK(call<[](int value) -> asio::awaitable<int> { co_return value + 1; }>(1) == 2);
}

TEST_CASE("what can only be moved travels, and the caller keeps its own") {
  auto mine = std::make_unique<int>(1);
  const auto theirs = call<&increased>(mine);
  CHECK(*theirs == 2);
  CHECK(*mine == 1);
  CHECK(*call<&increased>(std::make_unique<int>(5)) == 6);
}

TEST_CASE("spans are views of the message, aligned in it") {
  CHECK(call<&mixed>('x', std::vector<double>{1, 2}, "abc", std::vector<std::uint16_t>(2)) == 8);
  call_context context;
  cluster::payload message = encode_arguments<&remembers>(std::vector<double>{1, 2});
  const auto* const begin = reinterpret_cast<const double*>(message.bytes.data());
  static_cast<void>(cluster::run_now<&remembers>(context, std::move(message)));
  CHECK(seen_at >= begin);
  CHECK(seen_at <= begin + 2);
}

TEST_CASE("elements that are not aligned in memory are copied") {
  using slots =
      cluster::detail::slots<cluster::detail::types<std::span<const double>, std::string_view>>;
  cluster::payload message;
  cluster::detail::put_argument<std::span<const double>>(message, std::vector<double>{1, 2, 3});
  cluster::detail::put_argument<std::string_view>(message, "text");
  for (std::size_t shift = 0; shift < 9; ++shift) {
    bytes shifted(shift);
    shifted.insert(shifted.end(), message.bytes.begin(), message.bytes.end());
    slots stored;
    stored.read(std::span(shifted).subspan(shift), {}, "it");
    const auto values = std::get<0>(stored.all).pass();
    CHECK(reinterpret_cast<std::uintptr_t>(values.data()) % alignof(double) == 0);
    CHECK(sum(values) == 6);
    CHECK((std::get<0>(stored.all).copy != nullptr) == (shift % 8 != 0));
    CHECK(std::get<1>(stored.all).pass() == "text");
  }
}

TEST_CASE("large values are moved where they may be, and copied where the caller keeps them") {
  constexpr std::size_t many = cluster::attachment_size / sizeof(double);
  std::vector<double> values(many, 0.5);
  const void* const place = values.data();
  const auto copied = encode_arguments<&sum>(values);
  REQUIRE(copied.attachments.size() == 1);
  CHECK(copied.bytes.size() < 8);
  CHECK(copied.attachments[0]->bytes().data() != place);
  CHECK(values.size() == many);
  const auto by_reference = encode_arguments<&sum_of_vector>(std::as_const(values));
  CHECK(by_reference.attachments[0]->bytes().data() != place);
  const auto moved = encode_arguments<&sum>(std::move(values));
  REQUIRE(moved.attachments.size() == 1);
  CHECK(moved.attachments[0]->bytes().data() == place);
  CHECK(moved.bytes == copied.bytes);
  CHECK(std::ranges::equal(moved.attachments[0]->bytes(), copied.attachments[0]->bytes()));
  CHECK(encode_arguments<&sum>(std::vector<double>(many - 1)).attachments.empty());
}

TEST_CASE("large values are read where they are received") {
  constexpr std::size_t many = cluster::attachment_size / sizeof(double);
  CHECK(call<&sum>(std::vector<double>(many, 0.5)) == many * 0.5);
  CHECK(call<&sum_of_vector>(std::vector<double>(many, 0.5)) == many * 0.5);
  const std::string text(cluster::attachment_size, 'x');
  CHECK(call<&join>(text, text, text) == text + text + text);
  CHECK(call<&mixed>('x', std::vector<double>(many, 1), std::string_view(text),
                     std::vector<std::uint16_t>(4 * many + 1)) ==
        many + text.size() + 4 * many + 1);
  CHECK(call<&later_views>(text, std::vector<int>(many, 7), text, "end").size() > 2 * text.size());

  call_context context;
  auto message = encode_arguments<&remembers>(std::vector<double>(many));
  const auto* const place = reinterpret_cast<const double*>(message.attachments[0]->bytes().data());
  static_cast<void>(cluster::run_now<&remembers>(context, std::move(message)));
  CHECK(seen_at == place);
  auto through = encode_arguments<&passed_on>(std::vector<double>(many, 3));
  const void* const there = through.attachments[0]->bytes().data();
  auto answered = cluster::run_now<&passed_on>(context, std::move(through));
  REQUIRE(answered.attachments.size() == 1);
  CHECK(answered.attachments[0]->bytes().data() == there);
  const auto back = cluster::decode_result<std::vector<double>>(std::move(answered));
  CHECK(back.data() == there);
  CHECK(back == std::vector<double>(many, 3));
}

TEST_CASE("of very many large values the last are among the bytes") {
  cluster::payload message;
  const std::string text(cluster::attachment_size, 'x');
  for (std::size_t i = 0; i < cluster::attachment_limit + 2; ++i) {
    cluster::detail::put_argument<std::string>(message, text);
  }
  CHECK(message.attachments.size() == cluster::attachment_limit);
  CHECK(message.bytes.size() > 2 * text.size());
  cohort::wire::reader in(message.bytes);
  cluster::detail::attachments_left others{message.attachments};
  for (std::size_t i = 0; i < cluster::attachment_limit + 2; ++i) {
    cluster::detail::slot<std::string> each;
    each.read(in, 0, others);
    CHECK(each.pass() == text);
  }
  CHECK(in.ok());
  CHECK(in.left() == 0);
}

TEST_CASE("attachments that are not those of the arguments are refused") {
  constexpr std::size_t many = cluster::attachment_size / sizeof(double);
  const auto whole = encode_arguments<&sum>(std::vector<double>(many));
  const auto code_of = [](cluster::payload message) {
    return error_of([&] { answer(&cluster::run_now<&sum>, std::move(message)); }).second;
  };
  cluster::payload none(whole.bytes);
  CHECK(code_of(none) == cohort::wire_errc::too_long);
  auto two = whole;
  two.attachments.push_back(two.attachments[0]);
  CHECK(code_of(two) == cohort::wire_errc::trailing);
  auto others = none;
  others.attachments = encode_arguments<&sum>(std::vector<double>(many + 1)).attachments;
  CHECK(code_of(others) == cohort::wire_errc::bad_value);
  others.attachments = encode_arguments<&join>(std::string(8 * many, 'x'), "", "").attachments;
  CHECK(code_of(others) == cohort::wire_errc::bad_value);
  auto result = none;
  result.attachments = others.attachments;
  CHECK(error_of([&] {
          static_cast<void>(cluster::decode_result<std::vector<double>>(result, "f"));
        }).second == cohort::wire_errc::bad_value);
  cluster::payload number(cohort::wire::encode(5));
  number.attachments = whole.attachments;
  CHECK(error_of([&] { static_cast<void>(cluster::decode_result<int>(number, "f")); }).second ==
        cohort::wire_errc::trailing);
}

TEST_CASE("memory of large values is used again, up to a bound") {
  auto& kept = cluster::detail::recycled_attachments::instance();
  using bytes_there = cluster::attachment_of<bytes>;
  constexpr std::size_t size = cluster::recycled_limit / 4;
  const void* place = nullptr;
  {
    const auto first = bytes_there::sent(bytes(size));
    place = first->bytes().data();
  }
  CHECK(kept.bytes() >= size);
  {
    const auto less = bytes_there::received(size / 2);
    CHECK(less->capacity() == size);
    CHECK(less->bytes().data() == place);
    CHECK(less->bytes().size() == size / 2);
    const auto more = bytes_there::received(size);
    CHECK(more->bytes().data() != place);
  }
  {
    const auto much_less = bytes_there::received(size / 4);  // who gets it keeps its memory
    CHECK(much_less->capacity() < size);
    const auto text = cluster::attachment_of<std::string>::received(size);  // of another container
    CHECK(text->bytes().data() != place);
  }
  std::vector<cluster::attachment_ptr> many;
  for (int i = 0; i < 6; ++i) many.push_back(bytes_there::sent(bytes(size)));
  many.clear();
  CHECK(kept.bytes() <= cluster::recycled_limit);
  CHECK(kept.bytes() >= 3 * size);
  const std::size_t before = kept.bytes();
  static_cast<void>(bytes_there::sent(bytes(cluster::recycled_limit + 1)));
  static_cast<void>(bytes_there::sent(bytes(10)));
  CHECK(kept.bytes() == before);
}

TEST_CASE("what the callee throws leaves the call") {
  CHECK_THROWS_AS(call<&throws>(3), std::out_of_range);
  CHECK_THROWS_WITH(call<&later_throws>(), "late");
}

TEST_CASE("arguments that end too early are an error that names function and argument") {
  const bytes whole =
      encode_arguments<&mixed>('x', std::vector<double>{1, 2}, "abc", std::vector<std::uint16_t>(2))
          .bytes;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto [text, code] = error_of([&] { answer(&cluster::run_now<&mixed>, part); });
    CHECK(code.category() == cohort::wire_category());
    CHECK(has(text, "mixed"));
    const char* const position = size < 1    ? "1 of 4"
                                 : size < 24 ? "2 of 4"
                                 : size < 28 ? "3 of 4"
                                             : "4 of 4";
    CHECK(has(text, position));
  }
  bytes longer = whole;
  longer.push_back({});
  const auto [text, code] = error_of([&] { answer(&cluster::run_now<&mixed>, longer); });
  CHECK(code == cohort::wire_errc::trailing);
  CHECK(has(text, "mixed, behind its 4 arguments"));
}

TEST_CASE("a span that says it is longer than the message is refused") {
  bytes message;
  cohort::wire::writer(message).varint(std::uint64_t{1} << 61U);
  message.resize(64);
  const auto [text, code] = error_of([&] { answer(&cluster::run_now<&sum>, message); });
  CHECK(code == cohort::wire_errc::too_long);
  const auto four = encode_arguments<&sum>(std::vector<double>(4));
  CHECK(error_of([&] { answer(&cluster::run_now<&length>, four); }).second ==
        cohort::wire_errc::bad_value);
}

TEST_CASE("a result that does not decode is an error that names the function") {
  const bytes good = cohort::wire::encode(5);
  CHECK(cluster::decode_result<int>(good) == 5);
  bytes longer = good;
  longer.push_back({});
  const auto [text, code] =
      error_of([&] { static_cast<void>(cluster::decode_result<int>(longer, "f")); });
  CHECK(code == cohort::wire_errc::trailing);
  CHECK(has(text, "result of f"));
  CHECK(error_of([&] { static_cast<void>(cluster::decode_result<int>(bytes(1), "f")); }).second ==
        cohort::wire_errc::truncated);
  CHECK(error_of([&] { cluster::decode_result<void>(good); }).second ==
        cohort::wire_errc::trailing);
  cluster::decode_result<void>({});
}

TEST_CASE("a callee knows its name") {
  CHECK(has(std::string(cluster::callee<&half>::name()), "half"));
  CHECK(has(std::string(cluster::remote<&half>::name()), "half"));
}
