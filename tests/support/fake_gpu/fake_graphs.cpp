// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Captures and graphs of the double of CUDA's runtime; control.hpp says what they are and are not.
#include "support/fake_gpu/machine.hpp"

#include <algorithm>

namespace fake_gpu {

namespace {

void spoil(capture_object& capture) { capture.spoiled = true; }

lane_clock later(lane_clock one, const lane_clock& two) {
  one.resize(std::max(one.size(), two.size()));
  for (std::size_t i = 0; i < two.size(); ++i) one[i] = std::max(one[i], two[i]);
  return one;
}

std::size_t join(const std::shared_ptr<capture_object>& capture,
                 const std::shared_ptr<stream_object>& stream) {
  stream->capture = capture;
  stream->lane = capture->lanes.size();
  capture->lanes.push_back({stream, lane_clock(stream->lane + 1)});
  capture->graph->devices.push_back(stream->device);
  return stream->lane;
}

/// Whether what a lane has queued comes before the end of the first one.
bool all_joined(const capture_object& capture) {
  const lane_clock& end = capture.lanes.front().before;
  for (std::size_t i = 0; i < capture.lanes.size(); ++i) {
    const std::size_t work = capture.lanes[i].before[i];
    if (work > (i < end.size() ? end[i] : 0)) return false;
  }
  return true;
}

}  // namespace

cudaError_t refuse_capture(stream_object& stream) {
  spoil(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_safe() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool safe = true;
  for (const auto& one : the().captures) {
    const bool own =
        one->mode == cudaStreamCaptureModeThreadLocal && one->thread == std::this_thread::get_id();
    if (one->mode != cudaStreamCaptureModeGlobal && !own) continue;
    spoil(*one);
    safe = false;
  }
  return safe ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_query(event_object& event) {
  if (event.capture->ended) return cudaErrorInvalidValue;
  spoil(*event.capture);
  return cudaErrorCapturedEvent;
}

void capture_record(stream_object& stream, event_object& event) {
  graph_object& graph = *stream.capture->graph;
  event.edge = graph.edges++;
  event.before = stream.capture->lanes[stream.lane].before;
  graph.nodes.push_back({graph_node::record, stream.lane, event.edge});
}

std::pair<bool, cudaError_t> capture_wait(const std::shared_ptr<stream_object>& stream,
                                          event_object& event) {
  if (event.capture == nullptr) {
    if (stream->capture == nullptr || event.last == nullptr) return {false, cudaSuccess};
    spoil(*stream->capture);
    return {true, cudaErrorStreamCaptureIsolation};
  }
  capture_object& capture = *event.capture;
  if (capture.ended) return {true, cudaErrorInvalidValue};
  if (stream == at(stream->device).legacy) {
    spoil(capture);
    return {true, cudaErrorStreamCaptureImplicit};
  }
  if (stream->capture == nullptr) join(event.capture, stream);
  if (stream->capture != event.capture) {
    spoil(*stream->capture);
    spoil(capture);
    return {true, cudaErrorStreamCaptureMerge};
  }
  auto& before = capture.lanes[stream->lane].before;
  before = later(std::move(before), event.before);
  capture.graph->nodes.push_back({graph_node::wait, stream->lane, event.edge});
  return {true, cudaSuccess};
}

}  // namespace fake_gpu

using namespace fake_gpu;  // NOLINT: this file is the double

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamBeginCapture", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (object == at(object->device).legacy) return fail(cudaErrorStreamCaptureUnsupported);
  if (object->capture != nullptr) return fail(cudaErrorIllegalState);
  auto made = std::make_shared<capture_object>();
  made->mode = mode;
  made->thread = std::this_thread::get_id();
  join(made, object);
  the().captures.push_back(std::move(made));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamEndCapture", hold)) return fail(code);
  const auto object = find(stream);
  *graph = nullptr;
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  const auto capture = object->capture;
  if (capture == nullptr) return fail(cudaErrorIllegalState);
  if (object->lane != 0) return fail(cudaErrorStreamCaptureUnmatched);
  const bool wrong_thread = capture->mode != cudaStreamCaptureModeRelaxed &&
                            capture->thread != std::this_thread::get_id();
  capture->ended = true;
  for (const auto& lane : capture->lanes) {
    lane.stream->capture = nullptr;
    if (lane.stream->announced == 0) continue;
    the().faults.push_back("the capture of stream " + std::to_string(lane.stream->number) +
                           " ended before the collective that is in progress there was captured");
  }
  std::erase(the().captures, capture);
  if (wrong_thread) return fail(cudaErrorStreamCaptureWrongThread);
  if (capture->spoiled) return fail(cudaErrorStreamCaptureInvalidated);
  if (!all_joined(*capture)) return fail(cudaErrorStreamCaptureUnjoined);
  const auto made = std::exchange(capture->graph, nullptr);  // events may still hold the capture
  *graph = reinterpret_cast<cudaGraph_t>(made.get());
  the().graphs[made.get()] = made;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamIsCapturing", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = device_ready(object->device)) return fail(code);
  *status = object->capture == nullptr ? cudaStreamCaptureStatusNone
            : object->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaThreadExchangeStreamCaptureMode", hold)) return fail(code);
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGraphInstantiate", hold)) return fail(code);
  const auto found = the().graphs.find(graph);
  if (found == the().graphs.end()) return fail(cudaErrorInvalidValue);
  for (const int device : found->second->devices) {
    if (const auto code = device_ready(device)) return fail(code);
  }
  auto executable = std::make_shared<executable_graph>();
  executable->graph = found->second;
  for (const int device : found->second->devices) {
    auto lane = make_stream(device, 0);
    lane->of_graph = true;
    the().streams[lane.get()] = lane;
    executable->lanes.push_back(std::move(lane));
  }
  *made = reinterpret_cast<cudaGraphExec_t>(executable.get());
  the().executables[executable.get()] = std::move(executable);
  return cudaSuccess;
}

// 1. The first lane, in which the capture began, starts where the stream is now.
// 2. Each lane gets its nodes. Those of other lanes begin with a wait, else they would not have
// been
//    captured.
// 3. The stream goes on behind the first lane, which all others have joined.
// Lanes are streams, so a second launch of the same graph comes after the first one.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGraphLaunch", hold)) return fail(code);
  const auto object = find(stream);
  const auto found = the().executables.find(graph);
  if (!object || found == the().executables.end()) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (object->capture != nullptr) return fail(refuse_capture(*object));  // not in the double
  const executable_graph& what = *found->second;
  for (const auto& lane : what.lanes) {
    if (lane->generation != at(lane->device).generation) {
      return fail(cudaErrorInvalidResourceHandle);
    }
    if (const auto code = device_ready(lane->device)) return fail(code);
  }
  const std::uint64_t launch = ++the().tickets;
  const auto start = std::make_shared<mark>();
  const auto end = std::make_shared<mark>();
  std::vector<std::shared_ptr<mark>> edges(what.graph->edges);
  for (auto& edge : edges) edge = std::make_shared<mark>();
  const auto reach = [](std::shared_ptr<mark> target) {
    return [target = std::move(target)](lock&) { target->reached = true; };
  };
  push(*object, reach(start));
  push(*what.lanes.front(), wait_for(start));
  for (const graph_node& node : what.graph->nodes) {
    stream_object& lane = *what.lanes[node.lane];
    if (node.kind == graph_node::record) {
      push(lane, reach(edges[node.edge]));
    } else if (node.kind == graph_node::wait) {
      push(lane, wait_for(edges[node.edge]));
    } else {
      push(lane, node.make(launch));
    }
  }
  push(*what.lanes.front(), reach(end));
  push(*object, wait_for(end));
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGraphExecDestroy", hold)) return fail(code);
  const auto found = the().executables.find(graph);
  if (found == the().executables.end()) return fail(cudaErrorInvalidValue);
  for (const auto& lane : found->second->lanes) {  // what was launched is finished
    lane->destroyed = true;
    if (lane->queue.empty() && !lane->busy) lane->ending = true;
  }
  the().graveyard.push_back(found->second);
  found->second->graph = nullptr;
  the().executables.erase(found);
  the().changed.notify_all();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGraphDestroy", hold)) return fail(code);
  return fail(the().graphs.erase(graph) == 0 ? cudaErrorInvalidValue : cudaSuccess);
}

}  // extern "C"
