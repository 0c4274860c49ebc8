// Runs parameter servers in separate processes on this machine, and one worker that pulls rows of embedding
// tables from them and pushes gradients. For comparison, it sends the same bytes back and forth over plain
// TensorPipe, where no rows are looked up, copied together or stepped.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/benchmarks/allocator.h"
#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/parameter_server/exchange_options.h"
#include "lockstep/benchmarks/parameter_server/exchange_table.h"
#include "lockstep/benchmarks/parameter_server/raw_tensor_pipe.h"
#include "lockstep/benchmarks/parameter_server/server_processes.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/parameter_server/service/parameter_client.h"
#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/runtime/rpc/rpc_server.h"

namespace lockstep::benchmarks {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns how many tables a server has: ParameterClient places them round robin.
int64_t tables_of(const ExchangeOptions& options, int server, int num_servers) {
  return (options.num_tables - server + num_servers - 1) / num_servers;
}

std::vector<at::Tensor> row_numbers(const ExchangeOptions& options, int64_t num_tables) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < num_tables; ++i)
    rows.push_back(
        std::get<0>(at::randperm(options.num_rows).narrow(0, 0, options.batch_rows).sort()).contiguous());
  return rows;
}

std::vector<at::Tensor> row_values(const ExchangeOptions& options, int64_t num_tables) {
  std::vector<at::Tensor> values;
  for (int64_t i = 0; i < num_tables; ++i) values.push_back(at::randn({options.batch_rows, options.width}));
  return values;
}

/// Ports of the parameter server, and of six servers that answer with ready tensors. Our messages and both
/// channels of TensorPipe have one for pulling and one for pushing each.
constexpr int kNumPorts = 7;

void serve(const ExchangeOptions& options, int server, int num_servers,
           const ServerProcesses::Listening& listening) {
  at::set_num_threads(1);
  ParameterService service;
  const RpcServer own({}, [&](const RpcMessage& request) { return service.handle(request); });
  const auto pulled = row_values(options, tables_of(options, server, num_servers));
  const std::vector<at::Tensor> pushed{at::zeros({1})};
  const RawPipeServer tcp_pull(PipeChannel::kTcp, pulled);
  const RawPipeServer tcp_push(PipeChannel::kTcp, pushed);
  const RawPipeServer cma_pull(PipeChannel::kCrossMemoryAttach, pulled);
  const RawPipeServer cma_push(PipeChannel::kCrossMemoryAttach, pushed);
  const RpcServer rpc_pull({}, [&](const RpcMessage&) { return RpcMessage{.tensors = pulled}; });
  const RpcServer rpc_push({}, [&](const RpcMessage&) { return RpcMessage{.tensors = pushed}; });
  listening({own.port(), tcp_pull.port(), tcp_push.port(), cma_pull.port(), cma_push.port(), rpc_pull.port(),
             rpc_push.port()});
}

/// A worker's TensorPipe connections to all servers.
class RawWorker {
 public:
  RawWorker(PipeChannel channel, const ServerProcesses& servers, size_t which_port) {
    for (size_t i = 0; i < servers.size(); ++i)
      clients_.push_back(std::make_unique<RawPipeClient>(channel, servers.ports_of(i)[which_port]));
  }
  void exchange(const std::vector<std::vector<at::Tensor>>& requests) {
    for (size_t i = 0; i < clients_.size(); ++i) clients_[i]->send(requests[i]);
    for (const auto& client : clients_) client->receive();
  }

 private:
  std::vector<std::unique_ptr<RawPipeClient>> clients_;
};

/// A worker's connections to all servers for our own messages.
class RpcWorker {
 public:
  RpcWorker(const ServerProcesses& servers, size_t which_port) {
    for (size_t i = 0; i < servers.size(); ++i)
      clients_.push_back(std::make_unique<RpcClient>(RpcClientOptions{
          .name = c10::str("server ", i), .host = "127.0.0.1", .port = servers.ports_of(i)[which_port]}));
  }
  void exchange(const std::vector<std::vector<at::Tensor>>& requests) {
    for (size_t i = 0; i < clients_.size(); ++i) clients_[i]->send({.tensors = requests[i]});
    for (const auto& client : clients_) client->receive();
  }

 private:
  std::vector<std::unique_ptr<RpcClient>> clients_;
};

class Worker {
 public:
  Worker(const ExchangeOptions& options, const ServerProcesses& servers, const UpdateRule& rule,
         const std::string& rule_name)
      : client_(options_for(servers)) {
    for (int64_t i = 0; i < options.num_tables; ++i) {
      tables_.push_back(client_.add_variable(c10::str(rule_name, " ", i), {options.num_rows, options.width}));
      client_.create(tables_.back(), at::randn({options.num_rows, options.width}), rule);
    }
    const auto rows = row_numbers(options, options.num_tables);
    const auto gradients = row_values(options, options.num_tables);
    for (size_t i = 0; i < tables_.size(); ++i) {
      wanted_.push_back({tables_[i], rows[i]});
      gradients_.push_back(
          {.variable = tables_[i], .rows = rows[i], .values = gradients[i], .versions = {0}, .lr = 0.01});
    }
  }
  void pull() { client_.pull(wanted_); }
  void push() { client_.push({.closure = next_closure_++}, gradients_); }

 private:
  static ParameterClientOptions options_for(const ServerProcesses& servers) {
    ParameterClientOptions options;
    for (size_t i = 0; i < servers.size(); ++i)
      options.servers.push_back(
          {.name = c10::str("server ", i), .host = "127.0.0.1", .port = servers.ports_of(i)[0]});
    return options;
  }

  ParameterClient client_;
  std::vector<int> tables_;
  std::vector<ParameterClient::Wanted> wanted_;
  std::vector<ParameterClient::Gradient> gradients_;
  uint64_t next_closure_ = 0;
};

void measure(const ExchangeOptions& options, const ServerProcesses& servers, ExchangeTable& table) {
  const auto count = static_cast<int>(servers.size());
  const double row_bytes = static_cast<double>(options.num_tables * options.batch_rows * 8);
  const double value_bytes = static_cast<double>(options.num_tables * options.batch_rows * options.width * 4);
  std::vector<std::vector<at::Tensor>> pulls;
  std::vector<std::vector<at::Tensor>> pushes;
  for (int server = 0; server < count; ++server) {
    const int64_t num_tables = tables_of(options, server, count);
    pulls.push_back(row_numbers(options, num_tables));
    pushes.push_back(pulls.back());
    for (const auto& values : row_values(options, num_tables)) pushes.back().push_back(values);
  }
  Worker sgd(options, servers, SgdRule{}, "sgd");
  Worker adagrad(options, servers, AdagradRule{}, "adagrad");
  RpcWorker rpc_pull(servers, 5);
  RpcWorker rpc_push(servers, 6);
  for (const auto& [channel, name, first_port] :
       {std::tuple{PipeChannel::kTcp, "TCP", size_t{1}},
        std::tuple{PipeChannel::kCrossMemoryAttach, "CMA", size_t{3}}}) {
    RawWorker raw_pull(channel, servers, first_port);
    RawWorker raw_push(channel, servers, first_port + 1);
    const auto compare = [&, name = name](const std::string& exchange, const std::function<void()>& own,
                                          const std::function<void()>& raw) {
      own(), raw();
      table.add({exchange, count, row_bytes + value_bytes, name},
                measure_alternating_pairs(
                    options.pairs, [&] { return seconds_of(raw); }, [&] { return seconds_of(own); }));
    };
    compare(
        "messages of a pull", [&] { rpc_pull.exchange(pulls); }, [&] { raw_pull.exchange(pulls); });
    compare(
        "messages of a push", [&] { rpc_push.exchange(pushes); }, [&] { raw_push.exchange(pushes); });
    compare(
        "pull", [&] { sgd.pull(); }, [&] { raw_pull.exchange(pulls); });
    compare(
        "push, SGD", [&] { sgd.push(); }, [&] { raw_push.exchange(pushes); });
    compare(
        "push, Adagrad", [&] { adagrad.push(); }, [&] { raw_push.exchange(pushes); });
  }
}

int run(int argc, char** argv) {
  const auto parsed = parse_exchange(argc, argv);
  if (!parsed) return 0;
  const auto& options = *parsed;
  // Starts all servers before this process has threads, which a forked child would lack.
  std::vector<std::unique_ptr<ServerProcesses>> groups;
  for (const int count : options.servers)
    groups.push_back(std::make_unique<ServerProcesses>(
        count, kNumPorts,
        [&, count](int server, const auto& listening) { serve(options, server, count, listening); }));
  at::set_num_threads(1);
  std::cout << measurement::today() << ", " << measurement::describe_machine() << "; " << describe_allocator()
            << ". " << options.num_tables << " tables of " << options.num_rows << " rows of " << options.width
            << " floats, " << options.batch_rows << " rows of each in an exchange, " << options.pairs
            << " pairs.\n\n";
  ExchangeTable table;
  for (const auto& servers : groups) measure(options, *servers, table);
  std::cout << table << std::flush;
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
