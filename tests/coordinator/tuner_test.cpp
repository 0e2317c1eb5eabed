// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Which numbers are tried and kept, on modelled machines: nothing here takes time.
#include "support/catch.hpp"

#include <cohort/coordinator/tuning/step_clock.hpp>
#include <cohort/coordinator/tuning/tuner.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using cohort::coordination::comparison;
using cohort::coordination::number_change;
using cohort::coordination::number_range;
using cohort::coordination::numbers;
using cohort::coordination::step_clock;
using cohort::coordination::tuner;

namespace {

enum class noise { none, usual, heavy, two_faced, drifting };

/// How long a step takes on a machine: a bowl over the logarithm of each number, with a plateau
/// around the best, times noise that does not depend on the numbers.
struct machine {
  std::vector<double> best;       ///< logarithms to base 2
  std::vector<double> steepness;  ///< of the time, for each doubling beyond the plateau
  double plateau = 0.5;
  double most = 8;  ///< nothing costs more than so many times the best
  noise kind = noise::usual;
  std::mt19937_64 random;
  bool slow = false;
  double drift = 0;

  [[nodiscard]] double cost(const numbers& at) const {
    double factor = 1;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double off = std::abs(std::log2(static_cast<double>(at[i])) - best[i]);
      factor += steepness[i] * std::max(off - plateau, 0.0);
    }
    return 5e6 * std::min(factor, most);
  }
  [[nodiscard]] double noise_of_next_step() {
    std::normal_distribution<double> normal;
    const double small = std::exp(0.02 * normal(random));
    const auto chance = [this](double share) {
      return std::uniform_real_distribution<double>()(random) < share;
    };
    switch (kind) {
      case noise::none:
        return 1;
      case noise::usual:
        return small;
      case noise::heavy:
        return small * std::exp(0.1 * normal(random)) * (chance(0.02) ? 4 : 1);
      case noise::two_faced:
        if (chance(0.02)) slow = !slow;
        return small * (slow ? 1.6 : 1);
      case noise::drifting:
        drift += 0.003 * normal(random);
        return small * std::exp(drift);
    }
    return 1;
  }
};

const std::vector<number_range> ranges(3, {4096, std::uint64_t{1} << 24U});
const std::vector<number_change> changes{
    {"all", {1, 1, 1}}, {"first", {1, 0, 0}}, {"second", {0, 1, 0}}, {"third", {0, 0, 1}}};

struct outcome {
  double ratio = 0;  ///< of all steps together to the same steps with what was there first
  numbers kept;
  std::uint64_t trials = 0;
};

/// Runs so many steps. A trial can be stopped at each of `parts` of a step.
outcome run(machine& on, const numbers& first, int steps, int parts) {
  tuner one(ranges, changes, first, first);
  double with = 0;
  double without = 0;
  const double usual = on.cost(first);
  for (int step = 0; step < steps; ++step) {
    const double factor = on.noise_of_next_step();
    double time = 0;
    for (int part = 0; part < parts; ++part) {
      time += factor * on.cost(one.present()) / parts;
      if (part + 1 < parts) one.step_takes(time);
    }
    with += time;
    without += factor * usual;
    one.step_ended(time);
  }
  return {with / without, one.kept(), one.trials()};
}

machine random_machine(std::uint64_t seed, noise kind) {
  machine made;
  made.kind = kind;
  made.random.seed(seed);
  std::uniform_real_distribution<double> place(13, 23);
  std::uniform_real_distribution<double> steep(0, 0.6);
  for (int i = 0; i < 3; ++i) {
    made.best.push_back(place(made.random));
    made.steepness.push_back(steep(made.random));
  }
  return made;
}

const numbers begin{1U << 18U, 1U << 18U, 1U << 18U};

std::uint64_t place(const machine& on, std::size_t i) {
  return static_cast<std::uint64_t>(std::exp2(on.best[i]));
}

constexpr noise every_noise[] = {noise::none, noise::usual, noise::heavy, noise::two_faced,
                                 noise::drifting};

}  // namespace

TEST_CASE("a way is faster only if it wins by more than the noise", "[coordinator][tune]") {
  using finding = comparison::finding;
  const auto compare = [](double ratio, double spread, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const auto turn = [&](double time) { return time * std::exp(spread * normal(random)); };
    comparison one;
    one.begin(turn(1000), spread, 1);
    for (;;) {
      one.add_other(turn(1000 * ratio));
      const finding result = one.add_usual(turn(1000));
      if (result != finding::open) return result;
    }
  };
  int wrong = 0;
  int missed = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CHECK(compare(0.7, 0.03, seed) == finding::wins);
    CHECK(compare(1.3, 0.03, seed) == finding::loses);
    for (const double spread : {0.001, 0.01, 0.05, 0.2}) {
      wrong += compare(1.0, spread, seed) == finding::wins ? 1 : 0;
      wrong += compare(1.02, spread, seed) == finding::wins ? 1 : 0;
    }
    missed += compare(0.95, 0.01, seed) == finding::wins ? 0 : 1;
  }
  CHECK(wrong <= 16);  // of 8 000
  CHECK(missed <= 10);
}

TEST_CASE("a slow drift of the machine is no gain", "[coordinator][tune]") {
  for (const double drift : {0.9, 0.97, 1.03, 1.1}) {
    comparison one;
    double time = 1000;
    one.begin(time, 0.001, 3);
    auto result = comparison::finding::open;
    while (result == comparison::finding::open) {
      one.add_other(time *= drift);
      result = one.add_usual(time *= drift);
    }
    CHECK(result == comparison::finding::loses);
  }
}

TEST_CASE("the best numbers of a machine are found, or what its noise hides",
          "[coordinator][tune]") {
  for (const noise kind : every_noise) {
    INFO("noise " << static_cast<int>(kind));
    double kept = 0;
    double best = 0;
    constexpr int seeds = 30;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      machine on = random_machine(seed, kind);
      const double first = on.cost(begin);
      kept += on.cost(run(on, begin, 2000, 8).kept) / first;
      best += on.cost({place(on, 0), place(on, 1), place(on, 2)}) / first;
    }
    const bool quiet = kind != noise::heavy && kind != noise::two_faced;
    // Of what can be gained.
    CHECK((seeds - kept) / (seeds - best) > (quiet ? 0.97 : 0.3));
  }
}

TEST_CASE("tuning never costs 2 % of the first 1 000 steps", "[coordinator][tune]") {
  for (const noise kind : every_noise) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      machine on = random_machine(seed, kind);
      const outcome all = run(on, begin, 1000, seed % 2 == 0 ? 1 : 8);
      INFO("noise " << static_cast<int>(kind) << ", seed " << seed);
      CHECK(all.ratio <= 1.02);
      CHECK(on.cost(all.kept) <= 1.01 * on.cost(begin));
    }
  }
}

// Up to where half of everything, or twice as much, takes twice as long.
TEST_CASE("nor where every change is worse", "[coordinator][tune]") {
  for (const noise kind : every_noise) {
    for (const double steep : {0.0, 0.02, 0.1, 0.33}) {
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        machine on = random_machine(seed, kind);
        on.best = {18, 18, 18};
        on.plateau = 0;
        on.steepness = {steep, steep, steep};
        const outcome all = run(on, begin, 1000, seed % 2 == 0 ? 1 : 8);
        INFO("noise " << static_cast<int>(kind) << ", " << steep << ", seed " << seed);
        CHECK(all.trials > 0);
        CHECK(all.ratio <= 1.02);
        CHECK(on.cost(all.kept) <= 1.03 * on.cost(begin));
      }
    }
  }
}

TEST_CASE("a trial ends where no step can be compared any more", "[coordinator][tune]") {
  tuner one({{1, 1024}}, {{"size", {1}}}, {32}, {32});
  while (!one.trying() || one.present() == one.kept()) one.step_ended(1e6);
  bool has_changed = false;
  for (int step = 0; one.trying(); ++step) {
    REQUIRE(step < 100);
    has_changed = one.step_skipped();
  }
  CHECK(has_changed);
  CHECK(one.present() == one.kept());
  CHECK(!one.step_skipped());
}

TEST_CASE("what the program has chosen wins where nothing else can be changed",
          "[coordinator][tune]") {
  tuner one({{1, 1024}}, {}, {32}, {64});
  for (int step = 0; step < 10'000 && one.kept() != numbers{32}; ++step) {
    one.step_ended(one.present() == numbers{32} ? 1e6 : 1.5e6);
  }
  CHECK(one.kept() == numbers{32});
  CHECK(!one.step_ended(1e6));
}

TEST_CASE("what the program has chosen is seldom tried again where a file is faster",
          "[coordinator][tune]") {
  tuner one({{1, 1024}}, {}, {32}, {64});
  int slow = 0;
  for (int step = 0; step < 1000; ++step) {
    const bool is_slow = one.present() == numbers{32};
    slow += is_slow ? 1 : 0;
    one.step_ended(is_slow ? 1.5e6 : 1e6);
  }
  CHECK(one.kept() == numbers{64});
  CHECK(slow > 0);
  CHECK(slow < 50);
}

TEST_CASE("a trial that is much too slow is stopped in the middle of its step",
          "[coordinator][tune]") {
  tuner one({{1, 1024}}, {{"n", {1}}}, {16}, {16});
  while (!one.trying()) one.step_ended(1e7);
  CHECK(one.present() == numbers{64});
  CHECK(!one.step_takes(1.1e7));
  CHECK(one.step_takes(2e7));
  CHECK(one.present() == numbers{16});
  CHECK(!one.step_takes(3e7));
  CHECK(!one.step_ended(3e7));
  // It gets one more turn, if that can be paid.
  while (one.trying() && one.present() == numbers{16}) one.step_ended(1e7);
  if (one.trying()) {
    CHECK(one.step_ended(9e7));
    CHECK(!one.trying());
  }
  CHECK(one.present() == numbers{16});
  CHECK(one.changes() == 0);
}

TEST_CASE("what was kept goes back when the machine is another", "[coordinator][tune]") {
  machine on;
  on.random.seed(1);
  on.steepness = {0.3, 0.3, 0.3};
  on.best = {20, 20, 20};
  tuner one(ranges, changes, begin, begin);
  for (int step = 0; step < 1500; ++step) {
    one.step_ended(on.noise_of_next_step() * on.cost(one.present()));
  }
  CHECK(on.cost(one.kept()) < 0.8 * on.cost(begin));
  on.best = {18, 18, 18};
  for (int step = 0; step < 6000; ++step) {
    one.step_ended(on.noise_of_next_step() * on.cost(one.present()));
  }
  CHECK(on.cost(one.kept()) < 1.02 * on.cost(begin));
}

TEST_CASE("numbers stay in their range, and what cannot change is not tried",
          "[coordinator][tune]") {
  tuner fixed({{7, 7}}, {{"n", {1}}}, {7}, {7});
  for (int step = 0; step < 2000; ++step) fixed.step_ended(1e6);
  CHECK(fixed.trials() == 0);
  CHECK(fixed.present() == numbers{7});
  tuner zero({{0, 1U << 30U}}, {{"n", {10}}}, {1U << 30U}, {1U << 30U});
  for (int step = 0; step < 5000; ++step) {  // the less the better
    zero.step_ended(1e6 + 1e5 * std::log2(1 + static_cast<double>(zero.present()[0])));
    CHECK(zero.present()[0] <= 1U << 30U);
  }
  CHECK(zero.kept()[0] <= 1);
  CHECK(zero.changes() > 1);
  CHECK(zero.last_change().find("n down: ") == 0);
}

TEST_CASE("a step is what runs from one election of the largest name to the next",
          "[coordinator][tune]") {
  step_clock steps;
  std::uint64_t now = 0;
  std::vector<double> times;
  const auto elect = [&](std::uint32_t name, std::uint64_t bytes) {
    now += 10;
    if (const auto one = steps.elected(name, bytes, now)) times.push_back(*one);
  };
  elect(9, 1000);  // once, at the beginning
  for (int step = 0; step < 6; ++step) {
    for (std::uint32_t name = 0; name < 4; ++name) elect(name, 100 + 10 * (name % 3));
    elect(7, 8);  // a loss, twice
    elect(7, 8);
    now += 5;
    steps.idle(now);
    steps.idle(now);
    now += 1000;  // the program does something else
  }
  REQUIRE(times.size() >= 3);
  for (const double time : times) CHECK(time == 55);  // six elections, the pause is not among them
  const std::size_t before = times.size();
  elect(2, 120);
  elect(5, 5000);  // another step
  elect(2, 120);
  CHECK(times.size() == before);
}

TEST_CASE("the largest name may come late, and may be gone", "[coordinator][tune]") {
  step_clock steps;
  std::uint64_t now = 0;
  std::size_t found = 0;
  const auto elect = [&](std::uint32_t name, std::uint64_t bytes) {
    found += steps.elected(name, bytes, ++now) ? 1U : 0U;
  };
  for (int step = 0; step < 10; ++step) {
    elect(0, 8);
    elect(1, 4096);
  }
  CHECK(found >= 6);
  found = 0;
  for (int step = 0; step < 100; ++step) {
    elect(2, 16);
    elect(3, 8);
  }
  CHECK(found >= 30);
  steps.forget_names();
  found = 0;
  for (int step = 0; step < 10; ++step) elect(0, 16);
  CHECK(found >= 6);
}

TEST_CASE("a program that marks its steps is believed", "[coordinator][tune]") {
  step_clock steps;
  std::uint64_t now = 0;
  for (int step = 0; step < 5; ++step) {
    for (int micro = 0; micro < 4; ++micro) {
      const auto found = steps.elected(0, 64, now += 10);
      if (step > 0) CHECK(!found);
      steps.idle(now += 10);
    }
    const auto ended = steps.marked(now);
    CHECK(ended.has_value() == (step >= 2));
    if (ended) CHECK(*ended == 40);
  }
}
