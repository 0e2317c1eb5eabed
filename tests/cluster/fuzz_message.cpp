// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Fuzz target of what a remote call carries: bytes are decoded as an exception, as the arguments of
// several functions, as their results, and as what is told about calls of all. What is none of
// these must be a cohort::error with a code of the wire and nothing else, and what is one must
// encode again. Built with clang; libFuzzer's options are the program's:
//
//   cluster_fuzz_message -max_total_time=600 tests/cluster/corpus
//
// With --corpus FOLDER it writes good messages there, to begin with.

#include <cohort/cluster/error.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/link/message.hpp>

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "support/fuzz_corpus.hpp"

// Stands for the real one, which is not needed here.
class cohort::cluster::call_context {};

namespace fuzz {

/// Travels by its fields, and refuses some.
class picky : public std::exception {
 public:
  int value = 0;
  std::vector<std::string> notes;
};
template <class Archive>
void wire_fields(Archive& archive, picky& one) {
  archive(one.value, one.notes);
  if (one.value == 13) throw std::invalid_argument("13");
}

struct node {
  int value = 0;
  std::vector<node> next;
  std::unique_ptr<node> other;
};

struct record {
  std::string name;
  std::array<double, 2> place{};
  int grid[2][2] = {};
  std::optional<std::chrono::nanoseconds> when;
  std::variant<std::monostate, int, std::string> what;
};

}  // namespace fuzz

namespace {

namespace cluster = cohort::cluster;
using bytes = std::vector<std::byte>;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Reads all that it is given, so that the sanitizers see what lies outside.
double views(char first, std::span<const double> doubles, std::string_view text,
             std::span<const std::uint16_t> shorts, std::span<const float, 3> three) {
  double sum = first;
  for (const double value : doubles) sum += value;
  for (const char value : text) sum += value;
  for (const std::uint16_t value : shorts) sum += value;
  for (const float value : three) sum += static_cast<double>(value);
  return sum;
}
std::vector<fuzz::record> values(std::vector<fuzz::record> all, const std::map<int, bool>& flags,
                                 std::complex<float> factor, fuzz::node) {
  if (!flags.empty() && factor != std::complex<float>()) all.resize(all.size() / 2);
  return all;
}
std::error_code nothing(std::error_code code, std::vector<std::monostate>) { return code; }

void of_the_wire(const cohort::error& problem) {
  require(problem.code().category() == cohort::wire_category(), "another error");
}

template <auto F>
void call(const bytes& message) {
  cluster::call_context context;
  try {
    cluster::payload result = cluster::run_now<F>(context, message);
    using type = typename cluster::callee<F>::result;
    static_cast<void>(
        cluster::decode_result<type>(std::move(result), "f"));  // what was encoded decodes
  } catch (const cohort::error& problem) {
    of_the_wire(problem);
  }
  try {
    using type = typename cluster::callee<F>::result;
    static_cast<void>(cluster::decode_result<type>(message, "f"));
  } catch (const cohort::error& problem) {
    of_the_wire(problem);
  }
}

void look_at(const std::exception_ptr& thrown) {
  require(thrown != nullptr, "no exception");
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& one) {
    require(one.what() != nullptr, "no text");
  }
}

void exception(const bytes& message) {
  cohort::wire::reader in(message);
  const std::exception_ptr once = cluster::decode_exception(in);
  look_at(once);
  if (!in.ok()) return;
  bytes again;
  cohort::wire::writer out(again);
  cluster::encode_exception(out, once, 1, "host");
  cohort::wire::reader second(again);
  look_at(cluster::decode_exception(second));
  require(second.ok() && second.left() == 0, "what was decoded cannot be encoded");
}

/// What is one such message encodes to bytes that say the same.
template <class Message>
void told(const bytes& message) {
  cohort::wire::reader in(message);
  const auto once = in.get<Message>();
  if (!in.ok()) return;
  const bytes again = cohort::wire::encode(once);
  cohort::wire::reader second(again);
  require(cohort::wire::encode(second.get<Message>()) == again, "it says something else");
  require(second.ok() && second.left() == 0, "what was decoded cannot be encoded");
}

void write_corpus(const std::string& folder) {
  cohort_test::corpus_writer files(folder + "/message");
  const auto write = [&](int kind, const bytes& message) { files({kind}, message); };
  const auto write_exception = [&](const std::exception_ptr& thrown) {
    bytes message;
    cohort::wire::writer out(message);
    cluster::encode_exception(out, thrown, 2, "host");
    write(0, message);
  };
  using cohort::errc;
  fuzz::picky fields;
  fields.notes = {"a", "b"};
  write_exception(std::make_exception_ptr(std::runtime_error("text")));
  write_exception(std::make_exception_ptr(std::bad_alloc()));
  write_exception(std::make_exception_ptr(cohort::error(errc::stalled, "text")));
  write_exception(std::make_exception_ptr(cohort::deadline_error({{0}, {1}, {}, {}}, "text")));
  write_exception(std::make_exception_ptr(cluster::remote_error(1, "h", "type", "text")));
  write_exception(std::make_exception_ptr(fields));
  write_exception(std::make_exception_ptr(5));
  write_exception(cluster::detail::nest(cohort::peer_lost_error({1}, "outer"),
                                        std::make_exception_ptr(std::out_of_range("inner"))));
  write(1, cluster::encode_arguments<&views>('x', std::vector<double>{1, 2}, "text",
                                             std::vector<std::uint16_t>{1, 2, 3},
                                             std::array<float, 3>{1, 2, 3})
               .bytes);
  fuzz::record one;
  one.name = "name";
  one.when = std::chrono::seconds(1);
  one.what = "x";
  std::vector<fuzz::record> all;
  all.push_back(one);
  all.push_back(fuzz::record());
  fuzz::node tree;
  tree.next.emplace_back();
  tree.other = std::make_unique<fuzz::node>();
  write(2, cluster::encode_arguments<&values>(all, std::map<int, bool>{{1, true}},
                                              std::complex<float>(1, 2), std::move(tree))
               .bytes);
  write(2, cohort::wire::encode(all));
  write(3, cluster::encode_arguments<&nothing>(make_error_code(errc::closed),
                                               std::vector<std::monostate>(3))
               .bytes);
  write(4, cohort::wire::encode(cluster::communicator_use{7, true}));
  write(4, cohort::wire::encode(cluster::standing_aside{true, 3}));
  write(4, cohort::wire::encode(cluster::new_members{2, true, {0, 1, 5}}));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  cluster::register_exception<fuzz::picky>();
  return cohort_test::write_corpus_if_asked(*argc, *argv, write_corpus);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  const bytes message(begin + 1, begin + size);
  switch (data[0] % 5) {
    case 0:
      exception(message);
      break;
    case 1:
      call<&views>(message);
      break;
    case 2:
      call<&values>(message);
      break;
    case 3:
      call<&nothing>(message);
      break;
    default:
      told<cluster::communicator_use>(message);
      told<cluster::standing_aside>(message);
      told<cluster::new_members>(message);
      break;
  }
  return 0;
}
