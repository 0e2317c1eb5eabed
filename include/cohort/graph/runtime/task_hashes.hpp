// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The semantic hashes of the tasks of one scope, as far as this rank can know them.

#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/graph/machine/node.hpp>
#include <cohort/graph/runtime/argument_bytes.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/task_hash.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// The hash of a task is made of its definition and of the hashes of what it depends on. The home
/// of a task has both: what has come from other ranks has come with its hash (graph U4). *Threads*:
/// that of the loop.
template <class Any>
class task_hashes {
 public:
  using node_type = machine::basic_node<Any>;

  explicit task_hashes(int rank) noexcept : rank_(rank) {}

  /// Of a task that has all its inputs. Nothing if it has no hash, because that of an input is
  /// missing or its function has no identity.
  [[nodiscard]] std::optional<task_hash> of_ready(const node_type& node, machine::task_index task) {
    try {
      const machine::stored_definition* const what = node.definition_of(task);
      if (what == nullptr || what->source || !what->travels) return std::nullopt;
      for (const machine::edge& each : what->edges()) {
        if (node.noted_hash(each.value) == nullptr) return std::nullopt;
      }
      return combined(node, *what, {});
    } catch (const std::exception&) {  // of the identity; who asks by `of` is told
      return std::nullopt;
    }
  }

  /// Of any task. Throws cohort::error if this rank does not know all that is above it.
  [[nodiscard]] task_hash of(const node_type& node, machine::task_index task) {
    known_hashes known;
    std::unordered_set<machine::task_index> entered;
    std::vector<machine::task_index> path{task};
    while (!path.empty()) {
      const machine::task_index one = path.back();
      if (is_known(node, known, one)) {
        path.pop_back();
        continue;
      }
      const machine::stored_definition& what = definition(node, one, task);
      entered.insert(one);
      bool complete = true;
      for (const machine::edge& each : what.edges()) {
        if (is_known(node, known, each.value)) continue;
        // What was entered and is not known is on the way from the task to here.
        if (entered.contains(each.value)) refuse(node, task, errc::cycle, one, "is in a cycle");
        path.push_back(each.value);
        complete = false;
      }
      if (complete) known.emplace(one, combined(node, what, known));
    }
    return hash_in(node, known, task);
  }

 private:
  using known_hashes = std::unordered_map<machine::task_index, task_hash>;

  [[nodiscard]] static bool is_known(const node_type& node, const known_hashes& known,
                                     machine::task_index one) {
    return node.noted_hash(one) != nullptr || known.contains(one);
  }
  [[nodiscard]] static task_hash hash_in(const node_type& node, const known_hashes& known,
                                         machine::task_index one) {
    const machine::value_hash* const noted = node.noted_hash(one);
    return noted != nullptr ? task_hash(*noted) : known.at(one);
  }

  [[nodiscard]] const machine::stored_definition& definition(const node_type& node,
                                                             machine::task_index one,
                                                             machine::task_index asked) const {
    const machine::stored_definition* const what = node.definition_of(one);
    if (what == nullptr) {
      refuse(node, asked, errc::not_local, one, "has not been spawned or put here");
    }
    if (what->source) {
      refuse(node, asked, errc::not_supported, one,
             "is a source that was not put in this window, or has no wire format");
    }
    if (!what->travels) {
      refuse(node, asked, errc::not_supported, one, "has an argument without a wire format");
    }
    return *what;
  }
  [[noreturn]] void refuse(const node_type& node, machine::task_index asked, errc why,
                           machine::task_index one, std::string_view text) const {
    throw cohort::error(why, "graph: rank " + std::to_string(rank_) + " cannot tell the hash of " +
                                 node.text_of(asked) + ": " + node.text_of(one) + " " +
                                 std::string(text));
  }

  /// The bytes of all arguments say which parameters are filled by dependencies, and so stand in
  /// front of these.
  [[nodiscard]] task_hash combined(const node_type& node, const machine::stored_definition& what,
                                   const known_hashes& known) {
    const argument_bytes arguments(what.arguments());
    task_hasher hasher(identity(what.function, arguments.version));
    hasher.encoded_value(arguments.values);
    for (const machine::edge& each : what.edges()) {
      hasher.task(hash_in(node, known, each.value), each.use);
    }
    return hasher.finish();
  }
  [[nodiscard]] const function_identity& identity(std::uint32_t function,
                                                  const std::string& version) {
    std::pair key(function, version);
    const auto at = identities_.find(key);
    if (at != identities_.end()) return at->second;
    const task_code& code = function_table::instance().at<code_function>(function)();
    const auto made = code.identity(version.empty() ? nullptr : &version);
    return identities_.emplace(std::move(key), made).first->second;
  }

  int rank_;
  // By number in the function table, and version.
  std::map<std::pair<std::uint32_t, std::string>, function_identity> identities_;
};

}  // namespace cohort::graph::runtime
