#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/runtime/graphs/device_graph.h"

namespace lockstep {

/// Notes the calls to its graphs: `(0` begin of the first one's capture, `0)` its end, `0!` replay, `0x`
/// destruction.
class NotedGraphs : public DeviceGraphPool {
 public:
  /// The device has finished all its work while `is_idle`.
  explicit NotedGraphs(std::string& notes, std::shared_ptr<const std::atomic<bool>> is_idle = {})
      : notes_(notes), is_idle_(std::move(is_idle)) {}

  std::unique_ptr<DeviceGraph> make_graph() override { return std::make_unique<Graph>(notes_, count_++); }
  std::function<bool()> watch_stream() override {
    return [is_idle = is_idle_] { return !is_idle || *is_idle; };
  }

 private:
  class Graph : public DeviceGraph {
   public:
    Graph(std::string& notes, int number) : notes_(notes), name_(std::to_string(number)) {}
    ~Graph() override { notes_ += name_ + "x"; }
    void begin_capture() override { notes_ += "(" + name_; }
    void end_capture() override { notes_ += name_ + ")"; }
    void replay() override { notes_ += name_ + "!"; }

   private:
    std::string& notes_;
    const std::string name_;
  };

  std::string& notes_;
  const std::shared_ptr<const std::atomic<bool>> is_idle_;
  int count_ = 0;
};

}  // namespace lockstep
