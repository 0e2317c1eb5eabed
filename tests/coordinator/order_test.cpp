// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Random sets of named operations of all kinds, in another random order on each rank: names that
// are used again while they are in flight, bundles, joins, withdrawals, contradictions, sizes that
// change, tensors in pieces beside small ones. Every rank derives the plan of a round from the
// seed, so it knows what each operation must give.
//
// COHORT_TEST_SEED=n begins with that seed, COHORT_TEST_OPERATIONS=n goes on until so many
// operations have been submitted; every seed is a coordinator with options of its own.
#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/adasum.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using generator = std::mt19937_64;

int below(generator& random, int bound) {
  return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
}
bool chance(generator& random, int percent) { return below(random, 100) < percent; }

/// An element that has no name and no size that is a power of two.
struct triple {
  float a = 0;
  float b = 0;
  float c = 0;
  friend bool operator==(const triple&, const triple&) = default;
};

enum class verb {
  sum_float,
  average_int,
  average_double,
  least_int,
  greatest_double,
  product_int,
  bits_int,
  own_operation,
  scaled_float,
  out_of_place,
  owned,
  reduce,
  broadcast,
  broadcast_triple,
  all_gather,
  all_to_all,
  reduce_scatter,
  gather,
  scatter,
  barrier,
  bundle,
  bundle_broadcast,
  broadcast_object,
  all_gather_object,
  compressed_sum,
  compressed_average,
  compressed_reduce,
  compressed_reduce_scatter,
  compressed_bundle,
  adasum_double,
  scaled_adasum,
};
constexpr int verbs = 31;

/// What ends otherwise than by a result, on purpose.
enum class fate {
  completes,
  skipped,      // one rank submits it when it has failed everywhere else
  raced,        // one rank cancels at once, and all submit: any outcome, but the same everywhere
  contradicts,  // one rank submits something else
};

struct planned {
  verb what{};
  fate end = fate::completes;
  int name = -1;  // -1: none
  std::uint64_t salt = 0;
  int count = 0;
  int root = 0;
  int other = 0;   // the rank that is late, or says something else
  int caller = 0;  // the rank that cancels
  int priority = 0;
  std::vector<int> bringing;  // the ranks that submit it; the others have joined
};

struct round_plan {
  std::vector<planned> all;
  std::vector<std::vector<int>> order;  // per rank: indices
  std::vector<bool> joins;              // per rank: before all have to
  bool ends_with_join = false;
  bool pauses = false;
};

int value(const planned& of, int rank, int i) {
  std::uint64_t x =
      of.salt + static_cast<std::uint64_t>(rank) * 7919 + static_cast<std::uint64_t>(i) * 104729;
  x ^= x >> 31U;
  x *= 0x9e3779b97f4a7c15U;
  return static_cast<int>((x >> 40U) & 3U);
}
// Sizes repeat, so that some exchanges are saved.
int rows(const planned& of, int rank) {
  return (of.name + rank + static_cast<int>(of.salt % 2)) % 5;
}
int split(const planned& of, int from, int to) {
  return (of.name + from * 2 + to + static_cast<int>(of.salt % 2)) % 4;
}

std::vector<planned> plan_operations(generator& random, int ranks, bool joins) {
  std::vector<planned> all;
  const int many = 1 + below(random, chance(random, 10) ? 120 : 40);
  const int names = 1 + below(random, verbs);
  for (int i = 0; i < many; ++i) {
    planned one;
    one.what = static_cast<verb>(below(random, verbs));
    one.name = below(random, names);
    one.salt = random() >> 8U;
    // Signatures of a name repeat mostly, so that they are found in the cache.
    if (!chance(random, 20)) one.what = static_cast<verb>((one.name * 5) % verbs);
    const std::uint64_t of_name = static_cast<std::uint64_t>(one.name) * 2654435761U;
    one.count = static_cast<int>(of_name % 37);
    if (of_name % 7 == 0) one.count = static_cast<int>(1000 + of_name % 9000);  // in pieces
    if (chance(random, 10)) one.count = below(random, 50);
    one.root = static_cast<int>(of_name % static_cast<std::uint64_t>(ranks));
    one.priority = static_cast<int>(of_name % 3) - 1;
    one.bringing.resize(static_cast<std::size_t>(ranks));
    std::iota(one.bringing.begin(), one.bringing.end(), 0);
    if (chance(random, 10)) one.name = -1;
    if (one.name < 0) one.what = chance(random, 50) ? verb::sum_float : verb::barrier;
    if (ranks > 1 && !joins && chance(random, 8)) {
      one.end = static_cast<fate>(1 + below(random, 3));
      one.other = below(random, ranks);
      one.caller = (one.other + 1 + below(random, ranks - 1)) % ranks;
      // What fails, and what a rank submits late, has a name of its own in this round.
      if (one.end != fate::raced) one.name = 1000 * static_cast<int>(one.end) + i;
      if (one.end == fate::skipped) one.what = verb::sum_float;
      if (one.end == fate::contradicts) one.what = verb::sum_float;
      if (one.end == fate::raced && one.name < 0) one.end = fate::completes;
    }
    all.push_back(one);
  }
  return all;
}

/// Random, but what has one name stays in its order.
std::vector<int> random_order(generator& random, const std::vector<planned>& all) {
  std::vector<int> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::map<int, std::vector<int>> of_name;
  for (std::size_t i = 0; i < all.size(); ++i) of_name[all[i].name].push_back(static_cast<int>(i));
  std::map<int, std::size_t> next;
  for (int& each : order) {
    const int name = all[static_cast<std::size_t>(each)].name;
    each = of_name[name][next[name]++];
  }
  return order;
}

round_plan plan_round(std::uint64_t seed, int round, int ranks) {
  generator random(seed * 1000003 + static_cast<std::uint64_t>(round));
  round_plan plan;
  plan.ends_with_join = chance(random, 25);
  plan.pauses = chance(random, 30);
  plan.joins.assign(static_cast<std::size_t>(ranks), false);
  plan.all = plan_operations(random, ranks, plan.ends_with_join);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> order = random_order(random, plan.all);
    if (plan.ends_with_join && chance(random, 60)) {
      plan.joins[static_cast<std::size_t>(rank)] = true;
      order.resize(static_cast<std::size_t>(below(random, static_cast<int>(order.size()) + 1)));
    }
    plan.order.push_back(std::move(order));
  }
  for (std::size_t i = 0; i < plan.all.size(); ++i) {
    std::erase_if(plan.all[i].bringing, [&](int rank) {
      const auto& order = plan.order[static_cast<std::size_t>(rank)];
      return std::find(order.begin(), order.end(), static_cast<int>(i)) == order.end();
    });
  }
  return plan;
}

cohort::coordinator_options random_options(generator& random) {
  cohort::coordinator_options options;
  if (chance(random, 20)) return options;
  const auto one_of = [&](std::initializer_list<std::uint64_t> values) {
    return values.begin()[static_cast<std::size_t>(below(random, static_cast<int>(values.size())))];
  };
  options.fusion_threshold = one_of({0, 64, 1024, 65536});
  options.fusion_buffer = one_of({4096, 8192, 1 << 20});
  options.piece = one_of({4096, 5000, 1 << 20});
  options.pieces_in_flight = static_cast<std::uint32_t>(one_of({1, 2, 4}));
  options.bytes_in_flight = one_of({1, 8192, 1 << 21});
  options.slots = static_cast<std::uint32_t>(one_of({1, 2}));
  options.radix = static_cast<std::uint32_t>(one_of({1, 2, 8}));
  options.cache_capacity = one_of({1, 6, 20, 4096});
  options.cache_keep = one_of({0, 0, options.cache_capacity / 2});
  options.name_capacity = one_of({2, 30, 65536});
  options.firsts = one_of({0, 2, 64});
  options.in_flight = one_of({1, 3, 256});
  options.patience = one_of({1, 64});
  options.control_message = one_of({64, 300, 8192});
  options.divide_by_active = chance(random, 80);
  return options;
}

/// One seed on one rank.
class player {
 public:
  player(cohort::communicator world, std::uint64_t seed) : world_(world), seed_(seed) {
    generator random(seed);
    options_ = random_options(random);
    coord_ = cohort::coordinator(world, options_);
  }

  asio::awaitable<int> play(int rounds) {
    int submitted = 0;
    for (round_ = 0; round_ < rounds; ++round_) {
      plan_ = plan_round(seed_, round_, world_.size());
      co_await play_round();
      submitted += static_cast<int>(plan_.all.size());
    }
    co_await coord_.shutdown();
    co_return submitted;
  }

 private:
  [[nodiscard]] int me() const { return world_.rank(); }
  [[nodiscard]] int ranks() const { return world_.size(); }

  void complain(int index, const std::string& text) {
    const planned& one = plan_.all[static_cast<std::size_t>(index)];
    FAIL_CHECK("COHORT_TEST_SEED=" << seed_ << ", round " << round_ << ", operation " << index
                                   << " (verb " << static_cast<int>(one.what) << ", fate "
                                   << static_cast<int>(one.end) << ", name " << one.name
                                   << ", count " << one.count << ", root " << one.root << ", "
                                   << one.bringing.size() << " ranks bring data): " << text);
  }

  asio::awaitable<void> play_round() {
    const auto executor = co_await asio::this_coro::executor;
    generator mine(seed_ * 31 + static_cast<std::uint64_t>(round_ * ranks() + me()));
    outcomes_.assign(plan_.all.size() * 2, 0);
    std::vector<int> late;
    started_ = ended_ = 0;
    int spawned = 0;
    asio::steady_timer timer(executor);
    for (const int index : plan_.order[static_cast<std::size_t>(me())]) {
      const planned& one = plan_.all[static_cast<std::size_t>(index)];
      if (one.end == fate::skipped && one.other == me()) {
        late.push_back(index);
        continue;
      }
      ++spawned;
      asio::co_spawn(executor, perform(index), asio::detached);
      if (plan_.pauses && chance(mine, 10)) {
        timer.expires_after(std::chrono::microseconds(below(mine, 300)));
        co_await timer.async_wait(asio::use_awaitable);
      } else if (chance(mine, 30)) {
        co_await asio::post(executor, asio::use_awaitable);
      }
    }
    // The submissions of those that join come before they do.
    while (started_ < spawned) co_await asio::post(executor, asio::use_awaitable);
    if (plan_.joins[static_cast<std::size_t>(me())]) {
      const int newest = co_await coord_.join();
      if (newest < 0 || newest >= ranks()) complain(0, "join gave " + std::to_string(newest));
    }
    while (ended_ < spawned) co_await asio::post(executor, asio::use_awaitable);
    if (plan_.ends_with_join && !plan_.joins[static_cast<std::size_t>(me())]) {
      co_await coord_.join();
    }
    if (!late.empty() || !plan_.ends_with_join) co_await cohort_test::meet(world_);
    for (const int index : late) co_await perform(index);
    co_await compare_outcomes();
  }

  /// All ranks have seen the same.
  asio::awaitable<void> compare_outcomes() {
    for (std::size_t i = 0; i < plan_.all.size(); ++i) {
      if (plan_.all[i].end != fate::raced) outcomes_[2 * i] = 0;
      outcomes_[2 * i + 1] = -outcomes_[2 * i];
    }
    co_await coord_.all_reduce("outcomes", outcomes_, cohort::op::max);
    for (std::size_t i = 0; i < plan_.all.size(); ++i) {
      if (outcomes_[2 * i] != -outcomes_[2 * i + 1]) {
        complain(static_cast<int>(i), "ended differently on two ranks");
      }
    }
  }

  /// Submits, awaits, and checks.
  asio::awaitable<void> perform(int index) {
    const planned one = plan_.all[static_cast<std::size_t>(index)];
    bool failed = false;
    try {
      co_await submit(one, index);
    } catch (const cohort::joined_error& problem) {
      failed = true;
      if (!must_miss(one)) complain(index, problem.what());
    } catch (const cohort::mismatch_error& problem) {
      failed = true;
      if (one.end != fate::contradicts) complain(index, problem.what());
      if (problem.field() != "shape") complain(index, problem.what());
    } catch (const cohort::withdrawn_error& problem) {
      failed = true;
      outcomes_[static_cast<std::size_t>(2 * index)] = 1;
      if (one.end != fate::skipped && one.end != fate::raced) complain(index, problem.what());
      if (problem.ranks() != std::vector<int>{one.caller}) complain(index, problem.what());
      if (one.caller == me()) complain(index, problem.what());
    } catch (const std::system_error& problem) {
      failed = true;
      outcomes_[static_cast<std::size_t>(2 * index)] = 1;
      const bool cancels = one.end == fate::skipped || one.end == fate::raced;
      if (problem.code() != asio::error::operation_aborted || !cancels || one.caller != me()) {
        complain(index, problem.what());
      }
    } catch (const std::exception& problem) {
      failed = true;
      complain(index, problem.what());
    }
    if (!failed && (must_miss(one) || one.end == fate::skipped || one.end == fate::contradicts)) {
      complain(index, "completed, but must fail");
    }
    ++ended_;
  }

  [[nodiscard]] bool brings(const planned& one, int rank) const {
    return std::find(one.bringing.begin(), one.bringing.end(), rank) != one.bringing.end();
  }
  [[nodiscard]] bool must_miss(const planned& one) const {
    switch (one.what) {
      case verb::all_to_all:
      case verb::own_operation:
        return static_cast<int>(one.bringing.size()) < ranks();
      case verb::reduce:
      case verb::compressed_reduce:
      case verb::broadcast:
      case verb::broadcast_triple:
      case verb::gather:
      case verb::scatter:
      case verb::bundle_broadcast:
      case verb::broadcast_object:
        return !brings(one, one.root);
      default:
        return false;
    }
  }

  template <class T>
  std::vector<T> input(const planned& one, int rank) const {
    std::vector<T> data(static_cast<std::size_t>(one.count));
    for (int i = 0; i < one.count; ++i) {
      data[static_cast<std::size_t>(i)] = static_cast<T>(value(one, rank, i));
    }
    return data;
  }
  template <class T, class Function>
  std::vector<T> reduced(const planned& one, Function combine) const {
    std::vector<T> result;
    for (const int rank : one.bringing) {
      const std::vector<T> mine = input<T>(one, rank);
      if (result.empty()) {
        result = mine;
        continue;
      }
      for (std::size_t i = 0; i < mine.size(); ++i) result[i] = combine(result[i], mine[i]);
    }
    return result;
  }
  template <class T>
  std::vector<T> sum(const planned& one) const {
    return reduced<T>(one, [](T a, T b) { return static_cast<T>(a + b); });
  }
  template <class T>
  std::vector<T> average(const planned& one) const {
    std::vector<T> result = sum<T>(one);
    const auto by =
        static_cast<T>(options_.divide_by_active ? static_cast<int>(one.bringing.size()) : ranks());
    for (T& each : result) each = static_cast<T>(each / by);
    return result;
  }
  template <class T>
  std::vector<T> adasum(const planned& one, T factor) const {
    std::vector<std::vector<T>> all;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<T>& mine = all.emplace_back(static_cast<std::size_t>(one.count), T{});
      if (brings(one, rank)) mine = input<T>(one, rank);
      for (T& each : mine) each *= factor;
    }
    return cohort_test::adasum_of_all(std::move(all));
  }
  /// What reduce_scatter leaves of it on this rank.
  template <class T>
  [[nodiscard]] std::vector<T> own_part(const std::vector<T>& all) const {
    const auto count = static_cast<int>(all.size());
    const int each = count / ranks();
    const int more = count % ranks();
    const int first = me() * each + std::min(me(), more);
    return std::vector<T>(all.begin() + first, all.begin() + first + each + (me() < more ? 1 : 0));
  }
  template <class T>
  void expect(const std::vector<T>& have, const std::vector<T>& want, int index) {
    if (have == want) return;
    std::size_t at = 0;
    while (at < have.size() && at < want.size() && have[at] == want[at]) ++at;
    complain(index, "wrong at " + std::to_string(at) + " of " + std::to_string(want.size()) +
                        ", have " + std::to_string(have.size()));
  }

  /// Cancels where the plan says so.
  template <class T>
  asio::awaitable<T> finish(cohort::future<T> pending, const planned& one) {
    ++started_;
    if ((one.end == fate::skipped || one.end == fate::raced) && one.caller == me()) {
      pending.cancel();
    }
    co_return co_await std::move(pending);
  }

  template <class T, class Op>
  asio::awaitable<std::vector<T>> all_reduced(std::string name, const planned& one, Op op,
                                              cohort::call_options options) {
    std::vector<T> data = input<T>(one, me());
    if (one.end == fate::contradicts && one.other == me()) data.push_back(T{});
    co_await finish(coord_.all_reduce(name, data, op, options, cohort::as_future), one);
    co_return data;
  }

  /// Three tensors, of floats, of ints that are the rank plus `offset`, and of C.
  template <class C>
  asio::awaitable<void> reduce_bundle(std::string name, const planned& one,
                                      cohort::call_options options, int offset, int index) {
    std::vector<float> a = input<float>(one, me());
    std::vector<int> b(3, me() + offset);
    std::vector<C> c = input<C>(one, me());
    co_await finish(
        coord_.grouped_all_reduce(cohort::bundle(name).add("a", a).add("b", b).add("c", c),
                                  cohort::op::sum, options, cohort::as_future),
        one);
    expect(a, sum<float>(one), index);
    int total = 0;
    for (const int rank : one.bringing) total += rank + offset;
    expect(b, std::vector<int>(3, total), index);
    expect(c, sum<C>(one), index);
  }

  asio::awaitable<void> submit(const planned& one, int index) {
    using cohort::as_future;
    namespace op = cohort::op;
    const std::string name = one.name < 0 ? std::string() : "n" + std::to_string(one.name);
    cohort::call_options options;
    options.priority = one.priority;
    const auto count = static_cast<std::size_t>(one.count);
    switch (one.what) {
      case verb::sum_float:
        expect(co_await all_reduced<float>(name, one, op::sum, options), sum<float>(one), index);
        break;
      case verb::average_int:
        expect(co_await all_reduced<int>(name, one, op::average, options), average<int>(one),
               index);
        break;
      case verb::average_double:
        expect(co_await all_reduced<double>(name, one, op::average, options), average<double>(one),
               index);
        break;
      case verb::least_int:
        expect(co_await all_reduced<int>(name, one, op::min, options),
               reduced<int>(one, [](int a, int b) { return std::min(a, b); }), index);
        break;
      case verb::greatest_double:
        expect(co_await all_reduced<double>(name, one, op::max, options),
               reduced<double>(one, [](double a, double b) { return std::max(a, b); }), index);
        break;
      case verb::product_int:
        expect(co_await all_reduced<int>(name, one, op::product, options),
               reduced<int>(one, [](int a, int b) { return a * b; }), index);
        break;
      case verb::bits_int:
        expect(co_await all_reduced<int>(name, one, op::bit_and, options),
               reduced<int>(one, [](int a, int b) { return a & b; }), index);
        break;
      case verb::own_operation: {
        const cohort::user_op greatest{[](int a, int b) { return std::max(a, b); },
                                       cohort::commutative};
        expect(co_await all_reduced<int>(name, one, greatest, options),
               reduced<int>(one, [](int a, int b) { return std::max(a, b); }), index);
        break;
      }
      case verb::scaled_float: {
        options.prescale = 0.5;
        options.postscale = 4;
        std::vector<float> want = sum<float>(one);
        for (float& each : want) each *= 2;
        expect(co_await all_reduced<float>(name, one, op::sum, options), want, index);
        break;
      }
      case verb::out_of_place: {
        const std::vector<double> in = input<double>(one, me());
        std::vector<double> out(count);
        co_await finish(coord_.all_reduce(name, in, out, op::sum, options, as_future), one);
        expect(out, sum<double>(one), index);
        expect(in, input<double>(one, me()), index);
        break;
      }
      case verb::owned:
        expect(
            co_await finish(
                coord_.all_reduce(name, input<int>(one, me()), op::sum, options, as_future), one),
            sum<int>(one), index);
        break;
      case verb::reduce: {
        std::vector<double> data = input<double>(one, me());
        co_await finish(coord_.reduce(name, data, op::sum, one.root, options, as_future), one);
        expect(data, me() == one.root ? sum<double>(one) : input<double>(one, me()), index);
        break;
      }
      case verb::broadcast: {
        std::vector<int> data = input<int>(one, me());
        co_await finish(coord_.broadcast(name, data, one.root, options, as_future), one);
        expect(data, input<int>(one, one.root), index);
        break;
      }
      case verb::broadcast_triple: {
        const auto make = [&](int rank) {
          std::vector<triple> data;
          for (int i = 0; i < one.count; ++i) {
            const auto x = static_cast<float>(value(one, rank, i));
            data.push_back({x, x + 1, x + 2});
          }
          return data;
        };
        std::vector<triple> data = make(me());
        co_await finish(coord_.broadcast(name, data, one.root, options, as_future), one);
        expect(data, make(one.root), index);
        break;
      }
      case verb::all_gather: {
        const std::vector<int> in(static_cast<std::size_t>(rows(one, me())), value(one, me(), 0));
        std::vector<int> want;
        for (const int rank : one.bringing) {
          want.insert(want.end(), static_cast<std::size_t>(rows(one, rank)), value(one, rank, 0));
        }
        expect(co_await finish(coord_.all_gather(name, in, options, as_future), one), want, index);
        break;
      }
      case verb::all_to_all: {
        std::vector<double> in;
        std::vector<double> want;
        std::vector<int> splits;
        std::vector<std::size_t> sizes;
        for (int rank = 0; rank < ranks(); ++rank) {
          splits.push_back(split(one, me(), rank));
          in.insert(in.end(), static_cast<std::size_t>(splits.back()), value(one, me(), rank));
          sizes.push_back(static_cast<std::size_t>(split(one, rank, me())));
          want.insert(want.end(), sizes.back(), value(one, rank, me()));
        }
        const auto [come, from] =
            co_await finish(coord_.all_to_all(name, in, splits, options, as_future), one);
        expect(come, want, index);
        expect(from, sizes, index);
        break;
      }
      case verb::reduce_scatter:
        expect(co_await finish(
                   coord_.reduce_scatter(name, input<int>(one, me()), op::sum, options, as_future),
                   one),
               own_part(sum<int>(one)), index);
        break;
      // 16 bits hold these values exactly.
      case verb::compressed_sum:
        options.compression = cohort::compression::bf16;
        expect(co_await all_reduced<float>(name, one, op::sum, options), sum<float>(one), index);
        break;
      case verb::compressed_average:
        options.compression = cohort::compression::f16;
        expect(co_await all_reduced<double>(name, one, op::average, options), average<double>(one),
               index);
        break;
      case verb::compressed_reduce: {
        options.compression = cohort::compression::f16;
        std::vector<float> data = input<float>(one, me());
        co_await finish(coord_.reduce(name, data, op::sum, one.root, options, as_future), one);
        expect(data, me() == one.root ? sum<float>(one) : input<float>(one, me()), index);
        break;
      }
      case verb::compressed_reduce_scatter:
        options.compression = cohort::compression::bf16;
        expect(co_await finish(coord_.reduce_scatter(name, input<double>(one, me()), op::sum,
                                                     options, as_future),
                               one),
               own_part(sum<double>(one)), index);
        break;
      case verb::compressed_bundle:
        options.compression = cohort::compression::bf16;
        co_await reduce_bundle<double>(name, one, options, 1000, index);  // bf16 does not hold it
        break;
      case verb::adasum_double:
        expect(co_await all_reduced<double>(name, one, op::adasum, options), adasum<double>(one, 1),
               index);
        break;
      case verb::scaled_adasum: {
        options.prescale = 0.5;
        options.postscale = 4;
        const std::vector<float> in = input<float>(one, me());
        std::vector<float> out(count);
        co_await finish(coord_.all_reduce(name, in, out, op::adasum, options, as_future), one);
        std::vector<float> want = adasum<float>(one, 0.5F);
        for (float& each : want) each *= 4;
        expect(out, want, index);
        break;
      }
      case verb::gather: {
        const std::vector<int> in = input<int>(one, me());
        const auto all =
            co_await finish(coord_.gather(name, in, one.root, options, as_future), one);
        if (me() != one.root) {
          expect(all, {}, index);
          break;
        }
        for (const int rank : one.bringing) {
          const auto from = all.begin() + rank * one.count;
          expect(std::vector<int>(from, from + one.count), input<int>(one, rank), index);
        }
        break;
      }
      case verb::scatter: {
        std::vector<int> all;
        if (me() == one.root) {
          for (int rank = 0; rank < ranks(); ++rank) {
            const auto part = input<int>(one, rank);
            all.insert(all.end(), part.begin(), part.end());
          }
        }
        std::vector<int> out(count);
        co_await finish(coord_.scatter(name, all, out, one.root, options, as_future), one);
        expect(out, input<int>(one, me()), index);
        break;
      }
      case verb::barrier:
        co_await finish(coord_.barrier(cohort::operation_name(name), as_future), one);
        break;
      case verb::bundle:
        co_await reduce_bundle<int>(name, one, options, 1, index);
        break;
      case verb::bundle_broadcast: {
        std::vector<float> a = input<float>(one, me());
        co_await finish(
            coord_.grouped_broadcast(cohort::bundle(name).add("a", a), one.root, as_future), one);
        expect(a, input<float>(one, one.root), index);
        break;
      }
      case verb::broadcast_object: {
        const std::string mine(static_cast<std::size_t>(value(one, me(), 0)), 'x');
        const std::string have =
            co_await finish(coord_.broadcast_object(name, mine, one.root, as_future), one);
        if (have.size() != static_cast<std::size_t>(value(one, one.root, 0))) {
          complain(index, "another object");
        }
        break;
      }
      case verb::all_gather_object: {
        const std::vector<std::string> mine(static_cast<std::size_t>(value(one, me(), 0)), "word");
        const auto have = co_await finish(coord_.all_gather_object(name, mine, as_future), one);
        if (have.size() != one.bringing.size()) {
          complain(index, "another number of objects");
          break;
        }
        for (std::size_t i = 0; i < have.size(); ++i) {
          if (have[i].size() != static_cast<std::size_t>(value(one, one.bringing[i], 0))) {
            complain(index, "another object");
          }
        }
        break;
      }
    }
  }

  cohort::communicator world_;
  std::uint64_t seed_;
  cohort::coordinator_options options_;
  cohort::coordinator coord_;
  round_plan plan_;
  int round_ = 0;
  int started_ = 0;
  int ended_ = 0;
  std::vector<int> outcomes_;
};

long number_from(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atol(text);
}

}  // namespace

TEST_CASE("operations in any order give exact results", "[coordinator][order]") {
  const long first = number_from("COHORT_TEST_SEED", 1);
  const long wanted = number_from("COHORT_TEST_OPERATIONS", 3000);
  const bool tells = std::getenv("COHORT_TEST_TELL") != nullptr;
  long submitted = 0;
  long seed = first;
  for (; submitted < wanted; ++seed) {
    if (tells) std::cout << "seed " << seed << ", " << submitted << " operations" << std::endl;
    const auto one = static_cast<std::uint64_t>(seed);
    submitted += cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<int> {
      player plays(world, one);
      co_return co_await plays.play(6);
    });
  }
  INFO("COHORT_TEST_SEED=" << first << " to " << seed - 1);
  CHECK(submitted >= wanted);
}
