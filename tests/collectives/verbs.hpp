// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one list of verbs that the token matrix is generated from.
///
/// A verb here is a class with the header that it stands for, `operator()` that starts it with a
/// token, `right` that looks at the result, and, if it needs a partner, `before` and `after`.
/// scripts/check_verbs.sh compares the headers named here with those in include/.

#include <cohort/collectives.hpp>
#include <cohort/mpi/topology.hpp>
#include <cohort/p2p.hpp>

#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "support/world.hpp"

namespace collectives_test {

/// What all verbs work on. Every rank gives its number + 1.
struct bench {
  asio::io_context io;
  cohort::communicator world{io};
  cohort::communicator ring =
      cohort_test::run(io, [](cohort::communicator all) -> asio::awaitable<cohort::communicator> {
        const auto shape = cohort::mpi::cartesian::balanced(all.size(), 1, true);
        co_return co_await all.create(shape);
      }(world));
  int ranks = world.size();
  int own = world.rank() + 1;
  std::vector<int> one{own};
  std::vector<int> many = std::vector<int>(static_cast<std::size_t>(ranks), own);
  std::vector<int> counts = std::vector<int>(static_cast<std::size_t>(ranks), 1);
  std::vector<int> result{-1};
  std::vector<int> results = std::vector<int>(static_cast<std::size_t>(ranks), -1);
  std::vector<int> pair{own, own};
  std::vector<int> around{-1, -1};
  std::vector<int> two_counts{1, 1};
  std::vector<std::byte> object = cohort::comm::encode_object(one);  // as it travels
  std::vector<std::byte> arrived = std::vector<std::byte>(object.size());
  MPI_Request partner = MPI_REQUEST_NULL;
  std::optional<cohort::batch> messages;

  [[nodiscard]] int sum() const { return ranks * (ranks + 1) / 2; }
  [[nodiscard]] bool gathered() const {
    for (int rank = 0; rank < ranks; ++rank) {
      if (results[static_cast<std::size_t>(rank)] != rank + 1) return false;
    }
    return true;
  }
  [[nodiscard]] bool has_neighbors() const {
    const int left = cohort_test::left_of(ring) + 1;
    const int right = cohort_test::right_of(ring) + 1;
    return around == std::vector<int>{left, right};
  }
  void clear() {
    one = {own};
    result = {-1};
    results.assign(results.size(), -1);
    around = {-1, -1};
    arrived.assign(arrived.size(), std::byte{});
  }
  // Messages go to the rank itself, and MPI is the partner.
  void partner_sends() {
    const cohort::mpi::lock calls;
    MPI_Isend(&own, 1, MPI_INT, world.rank(), 5, world.native(), &partner);
  }
  void partner_receives() {
    const cohort::mpi::lock calls;
    MPI_Irecv(result.data(), 1, MPI_INT, world.rank(), 5, world.native(), &partner);
  }
  void partner_sends_object() {
    const cohort::mpi::lock calls;
    MPI_Isend(object.data(), static_cast<int>(object.size()), MPI_BYTE, world.rank(), 5,
              world.native(), &partner);
  }
  void partner_receives_object() {
    const cohort::mpi::lock calls;
    MPI_Irecv(arrived.data(), static_cast<int>(arrived.size()), MPI_BYTE, world.rank(), 5,
              world.native(), &partner);
  }
  void partner_ends() {
    const cohort::mpi::lock calls;
    MPI_Wait(&partner, MPI_STATUS_IGNORE);
  }
};

namespace verbs {

struct alone {
  static void before(bench&) {}
  static void after(bench&) {}
  static bool right(const bench&) { return true; }
};

struct barrier : alone {
  static constexpr const char* header = "collectives/barrier.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::barrier(b.world, std::forward<Token>(token));
  }
};
struct broadcast : alone {
  static constexpr const char* header = "collectives/broadcast.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::broadcast(b.world, b.one, b.ranks - 1, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.one[0] == b.ranks; }
};
struct broadcast_object : alone {
  static constexpr const char* header = "collectives/serialized.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::broadcast(b.world, cohort::serialized(b.one), b.ranks - 1,
                             std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.one == std::vector<int>{b.ranks}; }
};
struct all_reduce : alone {
  static constexpr const char* header = "collectives/all_reduce.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_reduce(b.world, b.one, cohort::op::sum, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.one[0] == b.sum(); }
};
struct all_reduce_persistent : alone {
  static constexpr const char* header = "collectives/persistent.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_reduce_init(b.world, b.one, cohort::op::sum).run(std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.one[0] == b.sum(); }
};
struct reduce : alone {
  static constexpr const char* header = "collectives/reduce.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::reduce(b.world, b.one, b.result, cohort::op::sum, 0, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == (b.own == 1 ? b.sum() : -1); }
};
struct reduce_scatter : alone {
  static constexpr const char* header = "collectives/reduce_scatter.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::reduce_scatter(b.world, b.many, b.result, cohort::op::sum,
                                  std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == b.sum(); }
};
struct reduce_scatter_v : reduce_scatter {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::reduce_scatter_v(b.world, b.many, b.result, b.counts, cohort::op::sum,
                                    std::forward<Token>(token));
  }
};
struct scan : alone {
  static constexpr const char* header = "collectives/scan.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::scan(b.world, b.one, cohort::op::max, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.one[0] == b.own; }
};
struct exclusive_scan : scan {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::exclusive_scan(b.world, b.one, b.result, cohort::op::max,
                                  std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == (b.own == 1 ? -1 : b.own - 1); }
};
struct all_gather : alone {
  static constexpr const char* header = "collectives/all_gather.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_gather(b.world, b.one, b.results, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.gathered(); }
};
struct all_gather_v : all_gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_gather_v(b.world, b.one, b.results, b.counts, std::forward<Token>(token));
  }
};
/// Delivers a vector, which tokens must pass on.
struct all_gather_v_made : alone {
  static constexpr const char* header = "collectives/all_gather.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_gather_v(b.world, b.one, b.counts, std::forward<Token>(token));
  }
};
/// Without counts: in two stages.
struct all_gather_v_counted : all_gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_gather_v(b.world, b.one, b.results, cohort::exchanged_counts,
                                std::forward<Token>(token));
  }
};
struct all_gather_v_counted_made : alone {
  static constexpr const char* header = "collectives/all_gather.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_gather_v(b.world, b.one, std::forward<Token>(token));
  }
};
struct gather : alone {
  static constexpr const char* header = "collectives/gather.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::gather(b.world, b.one, b.results, 0, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.own != 1 || b.gathered(); }
};
struct gather_v : gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::gather_v(b.world, b.one, b.results, b.counts, 0, std::forward<Token>(token));
  }
};
struct gather_v_counted : gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::gather_v(b.world, b.one, b.results, cohort::exchanged_counts, 0,
                            std::forward<Token>(token));
  }
};
struct scatter : alone {
  static constexpr const char* header = "collectives/scatter.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::scatter(b.world, b.many, b.result, 0, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == 1; }
};
struct scatter_v : scatter {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::scatter_v(b.world, b.many, b.result, b.counts, 0, std::forward<Token>(token));
  }
};
struct all_to_all : alone {
  static constexpr const char* header = "collectives/all_to_all.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_to_all(b.world, b.many, b.results, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.gathered(); }
};
struct all_to_all_v : all_to_all {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_to_all_v(b.world, b.many, b.counts, b.results, b.counts,
                                std::forward<Token>(token));
  }
};
struct all_to_all_v_counted : all_to_all {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::all_to_all_v(b.world, b.many, b.counts, b.results, cohort::exchanged_counts,
                                std::forward<Token>(token));
  }
};
struct neighbor_all_gather : alone {
  static constexpr const char* header = "collectives/neighbor.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::neighbor_all_gather(b.ring, b.one, b.around, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.has_neighbors(); }
};
struct neighbor_all_gather_v : neighbor_all_gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::neighbor_all_gather_v(b.ring, b.one, b.around, b.two_counts,
                                         std::forward<Token>(token));
  }
};
struct neighbor_all_to_all : neighbor_all_gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::neighbor_all_to_all(b.ring, b.pair, b.around, std::forward<Token>(token));
  }
};
struct neighbor_all_to_all_v : neighbor_all_gather {
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::neighbor_all_to_all_v(b.ring, b.pair, b.two_counts, b.around, b.two_counts,
                                         std::forward<Token>(token));
  }
};

/// A partner sends, and `result` gets it.
struct receiving : alone {
  static void before(bench& b) { b.partner_sends(); }
  static void after(bench& b) { b.partner_ends(); }
  static bool right(const bench& b) { return b.result[0] == b.own; }
};
struct send : alone {
  static constexpr const char* header = "p2p/send.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::send(b.world, b.one, b.world.rank(), 5, std::forward<Token>(token));
  }
  static void before(bench& b) { b.partner_receives(); }
  static void after(bench& b) { b.partner_ends(); }
  static bool right(const bench& b) { return b.result[0] == b.own; }
};
struct recv : receiving {
  static constexpr const char* header = "p2p/recv.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::recv(b.world, b.result, b.world.rank(), 5, std::forward<Token>(token));
  }
};
struct recv_made : receiving {
  static constexpr const char* header = "p2p/recv.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::recv<std::vector<int>>(b.world, b.world.rank(), 5, std::forward<Token>(token));
  }
  static bool right(const bench&) { return true; }
};
struct send_object : alone {
  static constexpr const char* header = "p2p/serialized.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::send(b.world, cohort::serialized(b.one), b.world.rank(), 5,
                        std::forward<Token>(token));
  }
  static void before(bench& b) { b.partner_receives_object(); }
  static void after(bench& b) { b.partner_ends(); }
  static bool right(const bench& b) { return b.arrived == b.object; }
};
struct recv_object : receiving {
  static constexpr const char* header = "p2p/serialized.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::recv(b.world, cohort::serialized(b.result), b.world.rank(), 5,
                        std::forward<Token>(token));
  }
  static void before(bench& b) { b.partner_sends_object(); }
};
struct send_recv : alone {
  static constexpr const char* header = "p2p/send_recv.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::send_recv(b.world, b.one, cohort_test::right_of(b.world), b.result,
                             cohort_test::left_of(b.world), 6, std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == cohort_test::left_of(b.world) + 1; }
};
struct batch : alone {
  static constexpr const char* header = "p2p/batch.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    b.messages.emplace(b.world);
    b.messages->recv(b.result, cohort_test::left_of(b.world), 6);
    b.messages->send(b.one, cohort_test::right_of(b.world), 6);
    return b.messages->run(std::forward<Token>(token));
  }
  static bool right(const bench& b) { return b.result[0] == cohort_test::left_of(b.world) + 1; }
};
struct probe : receiving {
  static constexpr const char* header = "p2p/probe.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::probe(b.world, b.world.rank(), 5, std::forward<Token>(token));
  }
  static void after(bench& b) {
    {
      const cohort::mpi::lock calls;
      MPI_Recv(b.result.data(), 1, MPI_INT, b.world.rank(), 5, b.world.native(), MPI_STATUS_IGNORE);
    }
    b.partner_ends();
  }
};
struct matched_probe : receiving {
  static constexpr const char* header = "p2p/probe.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::matched_probe(b.world, b.world.rank(), 5, std::forward<Token>(token));
  }
  static bool right(const bench&) { return true; }  // the message is dropped
};
struct wait : alone {
  static constexpr const char* header = "p2p/wait.hpp";
  template <class Token>
  auto operator()(bench& b, Token&& token) const {
    return cohort::wait(b.world, b.partner, std::forward<Token>(token));
  }
  static void before(bench& b) {
    const cohort::mpi::lock calls;
    MPI_Iallreduce(b.one.data(), b.result.data(), 1, MPI_INT, MPI_SUM, b.world.native(),
                   &b.partner);
  }
  static bool right(const bench& b) { return b.result[0] == b.sum(); }
};

}  // namespace verbs

/// Every verb. check_verbs.sh also demands that each class above is named here.
using all_verbs = std::tuple<
    verbs::barrier, verbs::broadcast, verbs::broadcast_object, verbs::all_reduce,
    verbs::all_reduce_persistent, verbs::reduce, verbs::reduce_scatter, verbs::reduce_scatter_v,
    verbs::scan, verbs::exclusive_scan, verbs::all_gather, verbs::all_gather_v,
    verbs::all_gather_v_made, verbs::all_gather_v_counted, verbs::all_gather_v_counted_made,
    verbs::gather, verbs::gather_v, verbs::gather_v_counted, verbs::scatter, verbs::scatter_v,
    verbs::all_to_all, verbs::all_to_all_v, verbs::all_to_all_v_counted, verbs::neighbor_all_gather,
    verbs::neighbor_all_gather_v, verbs::neighbor_all_to_all, verbs::neighbor_all_to_all_v,
    verbs::send, verbs::recv, verbs::recv_made, verbs::send_object, verbs::recv_object,
    verbs::send_recv, verbs::batch, verbs::probe, verbs::matched_probe, verbs::wait>;

}  // namespace collectives_test
