#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

/// TensorPipe's channel for the tensors' bytes. Its shared memory transport is left out: it polls
/// without end, and would take a core from whatever else is measured.
enum class PipeChannel {
  kTcp,                ///< "basic" over "uv", as between machines
  kCrossMemoryAttach,  ///< "cma": the reader copies out of the writer's memory, on one machine
};

/// TensorPipe with nothing around it: a message of some tensors there, and one of other tensors back.
class RawPipeServer {
 public:
  /// Answers each message with `reply`, whatever it says.
  RawPipeServer(PipeChannel channel, std::vector<at::Tensor> reply);
  ~RawPipeServer();
  RawPipeServer(const RawPipeServer&) = delete;
  RawPipeServer& operator=(const RawPipeServer&) = delete;

  int port() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

class RawPipeClient {
 public:
  RawPipeClient(PipeChannel channel, int port);
  ~RawPipeClient();
  RawPipeClient(const RawPipeClient&) = delete;
  RawPipeClient& operator=(const RawPipeClient&) = delete;

  void send(const std::vector<at::Tensor>& request);
  /// Blocks; into new memory.
  std::vector<at::Tensor> receive();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::benchmarks
