#pragma once

#include <memory>
#include <string>

#include "lockstep/runtime/device_graph.h"

namespace lockstep {

/// Notes what is asked of its graphs: `(0` begin of the first one's capture, `0)` end, `0!` replay, `0x` its
/// destruction.
class NotedGraphs : public DeviceGraphPool {
 public:
  explicit NotedGraphs(std::string& notes) : notes_(notes) {}

  std::unique_ptr<DeviceGraph> make_graph() override { return std::make_unique<Graph>(notes_, count_++); }

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
  int count_ = 0;
};

}  // namespace lockstep
