// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A network for handwritten digits whose layers lie on different ranks. Micro-batches flow through
// a rendezvous: activations to the next rank, gradients back. Where a micro-batch has nothing left
// to teach, the branch that goes back is not taken, and "dead" takes its way instead. Any number of
// ranks computes exactly what one would.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cohort/cohort.hpp>
#include "support/dense_layer.hpp"
#include "support/digits.hpp"
#include "support/progress_bar.hpp"

using support::batch, support::digits, support::floats, support::part;
using layer = support::dense_layer;
constexpr std::size_t micro_batches = 4, epochs = 8;
constexpr float rate = 0.025F;
constexpr double learned = 0.02;  // a mean loss below which a micro-batch is left alone

/// The layers of one rank, between those of the rank before and the rank behind it.
struct stage {
  cohort::communicator world;
  cohort::rendezvous exchange;
  std::vector<layer> layers;
  cohort::step_id next_step = 0;
  double loss = 0;
  std::size_t hits = 0, dead = 0;
  stage(const cohort::communicator& ranks) : world(ranks), exchange(ranks) {
    const std::size_t sizes[] = {64, 48, 40, 32, 10}, n = world.size(), here = world.rank();
    for (std::size_t l = 0; l < 4; ++l)
      if (l * n / 4 == here) layers.emplace_back(sizes[l], sizes[l + 1], l + 1);
  }
  bool is_last() const { return world.rank() == world.size() - 1; }
  cohort::rendezvous_key key(int from, int to, const char* name, std::size_t micro) const {
    return {.source = from, .destination = to, .name = name, .iteration = micro};
  }

  /// Shows a batch to the network, and learns from it if that is asked for.
  asio::awaitable<void> run(batch all, bool learns) {
    const int me = world.rank();
    const auto step = exchange.step(next_step++);
    std::vector<std::vector<floats>> inputs(micro_batches);
    std::vector<std::optional<floats>> errors(micro_batches);
    for (std::size_t m = 0; m < micro_batches; ++m) {
      const batch shown = part(all, m, micro_batches);
      floats values(64 * shown.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = float(shown[i / 64][i % 64]) / 8 - 1;
      if (me != 0) {
        auto got = co_await step.recv<floats>(key(me - 1, me, "activations", m));
        values = std::move(*got.value);
      }
      for (const layer& l : layers) {
        floats out = l.forward(values);
        inputs[m].push_back(std::move(values));
        values = std::move(out);
      }
      if (is_last()) {
        const double enough = loss + learned * double(shown.size());
        values = support::judge(std::move(values), shown, loss, hits);
        if (loss > enough) errors[m] = std::move(values);
      } else {
        step.send(key(me, me + 1, "activations", m), std::move(values));
        cohort::poll(world);  // it leaves now, and the next rank need not wait for this one
      }
    }
    for (std::size_t m = 0; m < micro_batches && learns; ++m) {
      if (!is_last()) {
        auto got = co_await step.recv<floats>(key(me + 1, me, "gradient", m));
        errors[m] = std::move(got.value);  // nothing, if dead
      }
      for (std::size_t l = layers.size(); l-- > 0 && errors[m];)
        errors[m] = layers[l].backward(inputs[m][l], *errors[m]);
      dead += !errors[m];
      const auto back = key(me, me - 1, "gradient", m);
      if (me != 0) errors[m] ? step.send(back, std::move(*errors[m])) : step.send_dead(back);
    }
    for (layer& l : layers)
      for (std::size_t i = 0; i < l.weights.size(); ++i)
        l.weights[i] -= rate * std::exchange(l.gradient[i], 0.F);
    co_await step.drained();
    exchange.cleanup(step.id());
  }
};

/// Trains and returns the accuracy on the held-out digits in percent, on the last rank.
asio::awaitable<double> train(stage& mine, const digits& data, bool shown) {
  const std::size_t steps = data.training.size() / 32 + 1;
  double accuracy = 0;
  support::progress_bar bar{epochs * steps, shown && mine.is_last()};
  for (std::size_t epoch = 1; epoch <= epochs; ++epoch) {
    mine.loss = 0;
    for (std::size_t i = 0; i < steps; ++i, bar.advance())
      co_await mine.run(part(data.training, i, steps), true);
    const double loss = mine.loss / double(data.training.size());
    mine.hits = 0;
    co_await mine.run(data.held_out, false);
    accuracy = 100 * double(mine.hits) / double(data.held_out.size());
    bar.line("epoch %2zu  loss %.4f  test %.2f %%  %zu micro-batches went no way back", epoch, loss,
             accuracy, std::exchange(mine.dead, 0));
  }
  co_await mine.exchange.close();
  co_return accuracy;
}

asio::awaitable<int> run(cohort::communicator world, std::string file) {
  digits data;
  std::string trouble = "another rank could not read its data, or there are more than 4 ranks";
  bool fine = data.read(file, 1, trouble) && world.size() <= 4;
  co_await cohort::all_reduce(world, fine, cohort::op::logical_and);
  if (!fine) std::fprintf(stderr, "rank %d: %s\n", world.rank(), trouble.c_str());
  if (!fine) co_return EXIT_FAILURE;
  const auto alone = co_await world.split(world.rank());
  stage mine{world}, reference{alone};
  const double accuracy = co_await train(mine, data, true);
  co_await train(reference, data, false);
  for (const layer& l : mine.layers)
    for (const layer& r : reference.layers)
      fine = fine && (l.ins != r.ins || l.weights == r.weights);
  co_await cohort::all_reduce(world, fine, cohort::op::logical_and);
  if (mine.is_last())
    std::printf("weights on %d ranks are those of one: %s\naccuracy %.2f %%\n", world.size(),
                fine ? "yes" : "NO", accuracy);
  co_return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char** argv) {
  std::string file = "examples/data/digits.csv";
  CLI::App app{"Trains a small network on handwritten digits, its layers spread over the ranks."};
  app.add_option("file", file, "rows of 64 pixels and a label")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv, [&](cohort::communicator world) { return run(world, file); });
}
