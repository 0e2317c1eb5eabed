// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The executed graph as text for Graphviz, made of the recordings of all ranks.

#include <cohort/core/json_text.hpp>
#include <cohort/graph/detail/executed_graph.hpp>
#include <cohort/graph/detail/text_output.hpp>
#include <cohort/graph/recording.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::graph {

struct dot_options {
  std::string title{};      ///< the name of the scope
  std::size_t most = 2000;  ///< tasks and sources that are drawn; the picture says what is not
};

/// The graph as `dot` reads it. A box is a task, an ellipse a source; its colour is its rank. A
/// bold edge is a value that is taken, a dashed one an order without a value. Failed tasks have a
/// thick red border. Several windows are drawn apart. Where there are more tasks than `most`, those
/// are drawn that have the shortest way from the beginning of their window, earlier windows first.
///
/// The text depends on what has been run and nothing else: not on times, nor on the order of the
/// recordings.
template <class Any = void>
[[nodiscard]] std::string dot_text(std::span<const recording> ranks,
                                   const dot_options& options = {});

/// The same into a file. The error is the operating system's.
template <class Any = void>
[[nodiscard]] std::error_code write_dot(const std::string& path, std::span<const recording> ranks,
                                        const dot_options& options = {});

// ---- implementation --------------------------------------------------------------------------

namespace detail {

/// The inside of a quoted string that is a label: what Graphviz would replace is escaped, a control
/// character becomes a question mark, and a byte that is not UTF-8 U+FFFD.
template <class Any>
[[nodiscard]] std::string dot_label(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const char first = text.front();
    const std::size_t length = trace::utf8_length(text);
    if (first == '"' || first == '\\') {
      result += '\\';
      result += first;
    } else if (first == '&') {
      result += "&amp;";
    } else if (first == '\n') {
      result += "\\n";
    } else if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7F) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

/// Hue, saturation and value: neighbours are far apart on the wheel, by the golden section.
/// scripts/timelines/drawing.py has the same colours.
template <class Any>
[[nodiscard]] std::string dot_colour(int rank) {
  const std::uint64_t hue = (550 + static_cast<std::uint64_t>(std::max(rank, 0)) * 618) % 1000;
  const std::string digits = std::to_string(hue);
  return "0." + std::string(3 - digits.size(), '0') + digits + " 0.35 0.95";
}

template <class Any>
class dot_writer {
 public:
  dot_writer(const executed_graph<Any>& graph, const dot_options& options, text_output& out)
      : graph_(graph),
        title_(dot_label<Any>(options.title)),
        drawn_(graph.nodes().first(std::min(options.most, graph.nodes().size()))),
        out_(out) {}

  void write() {
    out_.put("digraph \"", title_, "\" {\n");
    out_.put("  graph [fontname=\"sans-serif\", labelloc=b, label=\"", sentences(), "\"];\n");
    out_.put("  node [fontname=\"sans-serif\", shape=box, style=filled];\n");
    out_.put("  edge [color=\"gray40\"];\n");
    legend();
    const bool apart = !drawn_.empty() && drawn_.front().window() != drawn_.back().window();
    for (std::size_t at = 0; at < drawn_.size();) {
      const std::uint32_t window = drawn_[at].window();
      const std::string number = std::to_string(window);
      if (apart) out_.put("  subgraph \"cluster_window_", number, "\" {\n    label=\"window ");
      if (apart) out_.put(number, "\";\n");
      for (; at < drawn_.size() && drawn_[at].window() == window; ++at) node(at, apart);
      if (apart) out_.put("  }\n");
    }
    for (std::size_t at = 0; at < drawn_.size(); ++at) edges(at);
    out_.put("}\n");
  }

 private:
  static std::string plural(std::uint64_t count, std::string_view word) {
    return std::to_string(count) + " " + std::string(word) + (count == 1 ? "" : "s");
  }

  [[nodiscard]] std::string sentences() const {
    const executed_counts& counts = graph_.counts();
    std::string text = title_.empty() ? "" : title_ + ": ";
    text += plural(counts.tasks, "task");
    if (counts.sources > 0) text += " and " + plural(counts.sources, "source");
    text += " of " + plural(graph_.ranks().size(), "rank");
    if (counts.windows > 1) text += " in " + plural(counts.windows, "window");
    text += ".";
    if (counts.failed > 0) text += " " + std::to_string(counts.failed) + " failed.";
    if (drawn_.size() < graph_.nodes().size()) {
      text += "\\nOnly " + std::to_string(drawn_.size()) + " are drawn, with the shortest ways " +
              "from the beginning; " + std::to_string(graph_.nodes().size() - drawn_.size()) +
              " are left out.";
    }
    if (counts.left_out > 0) {
      text += "\\n" + std::to_string(counts.left_out) +
              " more were not recorded, because the memory for it was full.";
    }
    if (counts.uses_left_out > 0) {
      text += "\\nDependencies that were not recorded: ";
      text += std::to_string(counts.uses_left_out) + ".";
    }
    if (counts.unknown > 0) {
      text += "\\nDependencies on what is not recorded: " + std::to_string(counts.unknown) + ".";
    }
    if (counts.repeated > 0) {
      text += "\\nRecorded more than once: " + std::to_string(counts.repeated) + ".";
    }
    return text + "\\nBox: task. Ellipse: source. Bold: the value is taken. Dashed: order only.";
  }

  void legend() {
    out_.put("  subgraph \"cluster_ranks\" {\n    label=\"ranks\";\n");
    for (const int rank : graph_.ranks()) {
      const std::string number = std::to_string(rank);
      out_.put("    r", number, " [label=\"rank ", number, "\", fillcolor=\"");
      out_.put(dot_colour<Any>(rank), "\"];\n");
    }
    out_.put("  }\n");
  }

  void node(std::size_t at, bool indented) {
    const executed_node& one = drawn_[at];
    const recorded_task task = one.task();
    out_.put(indented ? "    n" : "  n", std::to_string(at), " [label=\"");
    out_.put(dot_label<Any>(task.name));
    if (task.kind == recorded_kind::failed) out_.put("\\nfailed");
    out_.put("\", fillcolor=\"", dot_colour<Any>(one.rank()), "\"");
    if (task.kind == recorded_kind::failed) out_.put(", color=\"red\", penwidth=3");
    if (task.kind == recorded_kind::source) out_.put(", shape=ellipse");
    out_.put("];\n");
  }

  void edges(std::size_t at) {
    const recorded_task task = drawn_[at].task();
    for (std::size_t i = 0; i < task.uses.size(); ++i) {
      const std::size_t from = graph_.dependency(at, i);
      if (from >= drawn_.size()) continue;
      out_.put("  n", std::to_string(from), " -> n", std::to_string(at));
      if (task.uses[i].use == machine::use_kind::take) out_.put(" [style=bold, color=\"black\"]");
      if (task.uses[i].use == machine::use_kind::after) out_.put(" [style=dashed]");
      out_.put(";\n");
    }
  }

  const executed_graph<Any>& graph_;
  std::string title_;
  std::span<const executed_node> drawn_;
  text_output& out_;
};

}  // namespace detail

template <class Any>
std::string dot_text(std::span<const recording> ranks, const dot_options& options) {
  std::string text;
  detail::text_output out(text);
  const detail::executed_graph<Any> graph(ranks);
  detail::dot_writer<Any>(graph, options, out).write();
  return text;
}

template <class Any>
std::error_code write_dot(const std::string& path, std::span<const recording> ranks,
                          const dot_options& options) {
  std::string buffer;
  detail::text_output out(path, buffer);
  const detail::executed_graph<Any> graph(ranks);
  detail::dot_writer<Any>(graph, options, out).write();
  return out.finish();
}

}  // namespace cohort::graph
