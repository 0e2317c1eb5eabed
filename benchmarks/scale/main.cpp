// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What do many ranks cost rank 0? The protocol's nodes of up to 16 384 ranks in one process, which
// send each other the bytes that real ranks would. One lap: every node sends what it has to each
// neighbour, then all of that arrives. No MPI and no clock: the figures are counts, the same in
// every run.

#include <cohort/protocol.hpp>
#include <cohort/testing/network.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using bytes = std::vector<std::byte>;
using cohort::protocol::node;

struct counts {
  std::size_t laps = 0;
  std::size_t messages_in = 0;  ///< of rank 0; the largest of any rank is in `busiest`
  std::size_t messages_out = 0;
  std::size_t bytes_in = 0;
  std::size_t bytes_out = 0;
  std::size_t busiest = 0;   ///< most messages in and out of one rank
  std::size_t response = 0;  ///< most bytes that rank 0 sent to one child
};

class job {
 public:
  job(int ranks, int radix) : net_(ranks), ranks_(ranks) {
    using cohort::rank_set;
    using namespace cohort::protocol;
    node_options options;
    options.decides_when_asked = true;  // as the coordinator has it
    nodes_.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      nodes_.emplace_back(tree::balanced(rank, ranks, radix),
                          std::vector<rank_set>{rank_set::span(0, ranks - 1)}, options);
    }
  }

  /// All ranks submit so many all_reduces of 4 KiB, rank by rank, each in an order of its own.
  void submit(int operations) {
    cohort::protocol::signature sig;
    sig.element = static_cast<std::uint8_t>(cohort::element_type::float32);
    sig.element_size = 4;
    sig.dimensions = {1024};
    const cohort::protocol::call_site site{"train.cpp", 42};
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int i = 0; i < operations; ++i) {
        const int which = (i + rank) % operations;
        node_of(rank).submit(0, "layer" + std::to_string(which) + "/weights/gradient", sig,
                             static_cast<std::uint64_t>(which) + 1, {}, &site);
      }
    }
    due_ = static_cast<std::size_t>(operations) * static_cast<std::size_t>(ranks_);
  }
  void leave() {
    for (node& each : nodes_) each.leave(cohort::protocol::departure::drained);
  }

  /// Lets messages travel until there are no more.
  counts settle() {
    counts result;
    std::vector<std::size_t> handled(nodes_.size());
    std::vector<std::size_t> to_child(nodes_.size());
    std::vector<std::pair<int, int>> sent;
    for (;;) {
      nodes_.front().decide();
      sent.clear();
      for (int rank = 0; rank < ranks_; ++rank) {
        node& self = node_of(rank);
        obey(self);
        const auto send = [&](int to) {
          bytes message;
          if (!self.has_message(to) || !self.take_message(to, message)) return;
          if (rank == 0) {
            ++result.messages_out;
            result.bytes_out += message.size();
            to_child[static_cast<std::size_t>(to)] += message.size();
          }
          net_.send(rank, to, std::move(message));
          sent.emplace_back(rank, to);
        };
        if (!self.shape().is_root()) send(self.shape().parent());
        for (const int child : self.shape().children()) send(child);
      }
      if (sent.empty()) break;
      ++result.laps;
      for (const auto& [from, to] : sent) {
        const auto arrived = net_.deliver(from, to);
        if (to == 0) {
          ++result.messages_in;
          result.bytes_in += arrived->message.size();
        }
        ++handled[static_cast<std::size_t>(from)];
        ++handled[static_cast<std::size_t>(to)];
        node_of(to).receive(from, arrived->message);
      }
    }
    result.busiest = *std::max_element(handled.begin(), handled.end());
    result.response = *std::max_element(to_child.begin(), to_child.end());
    return result;
  }

  /// Throws unless every rank has started what it has submitted.
  void check_started() {
    if (started_ != due_) throw std::runtime_error("not every rank has started every operation");
    started_ = 0;
  }
  void check_released() const {
    for (const node& each : nodes_) {
      if (!each.released()) throw std::runtime_error("not every rank has ended");
    }
  }

 private:
  node& node_of(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  /// Data operations take no time here.
  void obey(node& self) {
    std::size_t done = 0;
    for (const auto& one : self.actions()) {
      if (one.kind == cohort::protocol::action_kind::start) ++done;
    }
    self.clear_actions();
    if (done != 0) self.finished(done);
    started_ += done;
  }

  cohort::testing::network<bytes> net_;
  int ranks_;
  std::vector<node> nodes_;
  std::size_t due_ = 0;
  std::size_t started_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int most = 16384;
  int radix = 8;
  int operations = 64;
  std::string file;
  CLI::App app("What many ranks cost rank 0; start it without mpirun");
  app.add_option("--ranks", most, "the largest number of ranks");
  app.add_option("--radix", radix, "children of a rank");
  app.add_option("--operations", operations, "of a batch");
  app.add_option("--csv", file, "a file for the figures, from which plot.py draws");
  CLI11_PARSE(app, argc, argv);

  std::ofstream csv;
  if (!file.empty()) {
    csv.open(file);
    csv << "event,ranks,laps,messages_in,messages_out,bytes_in,bytes_out,busiest,response\n";
  }
  std::printf("radix %d, %d operations in a batch; messages and bytes are those of rank 0\n\n",
              radix, operations);
  std::printf(
      "| event | ranks | laps | messages in | out | bytes in | out | to one child | messages "
      "of the busiest rank |\n|---|---|---|---|---|---|---|---|---|\n");
  const auto print = [&](const char* event, int ranks, const counts& of) {
    std::printf("| %s | %d | %zu | %zu | %zu | %zu | %zu | %zu | %zu |\n", event, ranks, of.laps,
                of.messages_in, of.messages_out, of.bytes_in, of.bytes_out, of.response,
                of.busiest);
    std::fflush(stdout);
    if (!csv.is_open()) return;
    csv << event << ',' << ranks << ',' << of.laps << ',' << of.messages_in << ','
        << of.messages_out << ',' << of.bytes_in << ',' << of.bytes_out << ',' << of.busiest << ','
        << of.response << '\n';
  };
  for (int ranks = 64; ranks <= most; ranks *= 2) {
    job all(ranks, radix);
    all.submit(operations);
    print("first", ranks, all.settle());
    all.check_started();
    all.submit(operations);
    print("cached", ranks, all.settle());
    all.check_started();
    all.leave();
    print("shutdown", ranks, all.settle());
    all.check_released();
  }
}
