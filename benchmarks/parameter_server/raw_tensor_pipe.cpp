#include "lockstep/benchmarks/parameter_server/raw_tensor_pipe.h"

#include <ATen/Functions.h>
#include <tensorpipe/tensorpipe.h>

#include <future>
#include <mutex>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

std::shared_ptr<tensorpipe::Context> make_context(PipeChannel channel) {
  auto context = std::make_shared<tensorpipe::Context>();
  // LibTorch uses the same priorities.
  context->registerTransport(0, "uv", tensorpipe::transport::uv::create());
  context->registerChannel(1000, "basic", tensorpipe::channel::basic::create());
  if (channel == PipeChannel::kCrossMemoryAttach)
    context->registerChannel(1200, "cma", tensorpipe::channel::cma::create());
  return context;
}

tensorpipe::Message message_of(const std::vector<at::Tensor>& tensors) {
  tensorpipe::Message message;
  for (const auto& tensor : tensors) {
    tensorpipe::Message::Tensor part;
    part.buffer = tensorpipe::CpuBuffer{.ptr = tensor.data_ptr()};
    part.length = tensor.nbytes();
    message.tensors.push_back(std::move(part));
  }
  return message;
}

/// Allocates the tensors that a descriptor announces, in `into`.
tensorpipe::Allocation allocation_of(const tensorpipe::Descriptor& descriptor,
                                     std::vector<at::Tensor>& into) {
  tensorpipe::Allocation allocation;
  for (const auto& part : descriptor.tensors) {
    into.push_back(at::empty({static_cast<int64_t>(part.length)}, at::kByte));
    allocation.tensors.push_back({tensorpipe::CpuBuffer{.ptr = into.back().data_ptr()}});
  }
  return allocation;
}

void check(const tensorpipe::Error& error) {
  if (error) throw std::runtime_error("TensorPipe: " + error.what());
}

}  // namespace

struct RawPipeServer::State : std::enable_shared_from_this<State> {
  std::shared_ptr<tensorpipe::Context> context;
  std::shared_ptr<tensorpipe::Listener> listener;
  std::vector<at::Tensor> reply;
  std::mutex mutex;
  std::vector<std::shared_ptr<tensorpipe::Pipe>> pipes;

  void accept() {
    listener->accept([self = shared_from_this()](const tensorpipe::Error& error, auto pipe) {
      if (error) return;
      {
        std::lock_guard lock(self->mutex);
        self->pipes.push_back(pipe);
      }
      self->serve(std::move(pipe));
      self->accept();
    });
  }

  void serve(std::shared_ptr<tensorpipe::Pipe> pipe) {
    auto& from = *pipe;
    from.readDescriptor([self = shared_from_this(), pipe = std::move(pipe)](const tensorpipe::Error& error,
                                                                            const auto& descriptor) mutable {
      if (error) return;
      auto held = std::make_shared<std::vector<at::Tensor>>();
      auto allocation = allocation_of(descriptor, *held);
      auto& reading = *pipe;
      reading.read(std::move(allocation),
                   [self, pipe = std::move(pipe), held](const tensorpipe::Error& failed) mutable {
                     if (failed) return;
                     pipe->write(message_of(self->reply), [self](const tensorpipe::Error&) {});
                     self->serve(std::move(pipe));
                   });
    });
  }
};

RawPipeServer::RawPipeServer(PipeChannel channel, std::vector<at::Tensor> reply)
    : state_(std::make_shared<State>()) {
  state_->context = make_context(channel);
  state_->reply = std::move(reply);
  state_->listener = state_->context->listen({"uv://127.0.0.1:0"});
  state_->accept();
}

RawPipeServer::~RawPipeServer() {
  state_->context->close();
  state_->context->join();
}

int RawPipeServer::port() const {
  const auto address = state_->listener->address("uv");
  return std::stoi(address.substr(address.rfind(':') + 1));
}

struct RawPipeClient::State {
  std::shared_ptr<tensorpipe::Context> context;
  std::shared_ptr<tensorpipe::Pipe> pipe;
  std::vector<at::Tensor> sending;
};

RawPipeClient::RawPipeClient(PipeChannel channel, int port) : state_(std::make_shared<State>()) {
  state_->context = make_context(channel);
  state_->pipe = state_->context->connect("uv://127.0.0.1:" + std::to_string(port));
}

RawPipeClient::~RawPipeClient() {
  state_->pipe->close();
  state_->context->close();
  state_->context->join();
}

void RawPipeClient::send(const std::vector<at::Tensor>& request) {
  state_->sending = request;
  state_->pipe->write(message_of(request), [state = state_](const tensorpipe::Error&) {});
}

std::vector<at::Tensor> RawPipeClient::receive() {
  std::vector<at::Tensor> reply;
  std::promise<void> is_read;
  state_->pipe->readDescriptor([&](const tensorpipe::Error& error, const tensorpipe::Descriptor& descriptor) {
    try {
      check(error);
      state_->pipe->read(allocation_of(descriptor, reply), [&](const tensorpipe::Error& failed) {
        try {
          check(failed);
          is_read.set_value();
        } catch (...) {
          is_read.set_exception(std::current_exception());
        }
      });
    } catch (...) {
      is_read.set_exception(std::current_exception());
    }
  });
  is_read.get_future().get();
  return reply;
}

}  // namespace lockstep::benchmarks
