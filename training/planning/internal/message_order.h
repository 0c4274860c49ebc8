#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep {

/// Which messages a rank takes in each of its receives. Messages from a rank come in the order in which it
/// sends them, so that a receive may take others before its own.
class MessageOrder {
 public:
  struct Message {
    PipelineAction receive;  ///< that it is for
    int from = 0, to = 0;    ///< ranks
    size_t send_action = 0;  ///< number of the sender's action
    size_t taken_in = 0;     ///< number of the receiver's action
    double sent_at = 0;      ///< on the timeline
    double taken_at = 0;     ///< when the receiver has probably taken it
  };

  MessageOrder(const PipelineSchedule& schedule, const PipelineTimeline& timeline);

  /// Returns the message that a receive is for.
  const Message& message_for(const PipelineAction& receive) const { return messages_.at(key_of(receive)); }
  /// Returns the messages that a receive takes.
  const std::vector<Message>& taken_in(const PipelineAction& receive) const {
    return taken_.at(key_of(receive));
  }

 private:
  using Key = std::tuple<PipelineOp, int, int>;
  static Key key_of(const PipelineAction& action) { return {action.op, action.stage, action.micro_batch}; }

  std::map<Key, Message> messages_;
  std::map<Key, std::vector<Message>> taken_;
};

}  // namespace lockstep
