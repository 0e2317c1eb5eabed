// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The operations that make a communicator from another.

#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/mpi/topology.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort::comm {

/// A communicator that does not exist yet. `Make` makes it of one that the same ranks have for
/// themselves, and may give an empty one.
template <class Make>
struct make_communicator_body {
  using signature = void(std::error_code, communicator);
  // A rank that left might let the others wait in MPI for ever.
  static constexpr cancels cancellation = cancels::never;

  [[nodiscard]] errc check(const communicator_base&) const noexcept { return {}; }
  void explain(failure_text& text) const {
    if (!why.empty()) text.note(why);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) {
    making = std::make_unique<creation>(post.state(), post.operation(), ranks(), tag);
    making->begin();
    return MPI_SUCCESS;
  }
  bool advance(poster&) {
    try {
      return making->goes_on([this](mpi::comm fresh) { make_of(std::move(fresh)); });
    } catch (const std::system_error& failed) {
      why = facts_of(failed);
      throw;
    }
  }
  std::tuple<communicator> finish(std::error_code, const outcome_of_requests&) {
    return std::move(result);
  }

  /// What this rank can see to be wrong, all ranks hear before one of them is in MPI for good.
  void make_of(mpi::comm fresh) {
    communicator made;
    on_all_or_none(fresh, [&] {
      if constexpr (requires { make.check(fresh); }) make.check(fresh);
      made = communicator::reserve(parent);
    });
    mpi::comm data = make(parent.state()->data, std::move(fresh));
    if (!data) return;
    mpi::comm exchange = communicator_state::exchange_of(data);
    made.fill(parent, std::move(data), std::move(exchange));
    result = std::move(made);
  }

  static constexpr const char* name = Make::name;
  communicator parent;
  Make make;
  int tag = creation_tag;
  std::string why = std::string();
  std::unique_ptr<creation> making = nullptr;  // MPI writes there while the body moves
  communicator result = communicator();
};

struct make_dup {
  static constexpr const char* name = "dup";
  mpi::comm operator()(const mpi::comm_ref& parent, mpi::comm fresh) const {
    return mpi::with_topology_of(parent, std::move(fresh));
  }
};

struct make_split {
  static constexpr const char* name = "split";
  int color;
  int key;
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return fresh.split(color, key);
  }
};

struct make_split_node {
  static constexpr const char* name = "split_node";
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return fresh.split_node();
  }
};

template <topology Topology>
struct make_topology {
  static constexpr const char* name = "create";
  Topology shape;
  void check(const mpi::comm_ref& fresh) const
    requires requires { shape.check(fresh); }
  {
    shape.check(fresh);
  }
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return shape.create(fresh);
  }
};

}  // namespace cohort::comm

namespace cohort {

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::dup(Token&& token) const {
  comm::make_communicator_body<comm::make_dup> body{*this, comm::make_dup{}};
  return comm::initiate(*this, std::move(body), token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split(int color, int key, Token&& token) const {
  comm::make_communicator_body<comm::make_split> body{*this, comm::make_split{color, key}};
  return comm::initiate(*this, std::move(body), token);
}

template <comm::topology Topology, completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::create(const Topology& topology, Token&& token) const {
  using make = comm::make_topology<Topology>;
  comm::make_communicator_body<make> body{*this, make{topology}};
  return comm::initiate(*this, std::move(body), token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split_node(Token&& token) const {
  comm::make_communicator_body<comm::make_split_node> body{*this, comm::make_split_node{}};
  return comm::initiate(*this, std::move(body), token);
}

}  // namespace cohort
