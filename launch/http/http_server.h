// An HTTP/1.1 server on one thread of its own. It knows nothing of models. Requests go to a handler, and answers come
// from any thread, whole or as a stream of events.
//
// TLS is left to a proxy. Limits bound the resources that a client can take: header, body, time for a request and for
// reading an answer, unread bytes of an answer, and open connections. Called by the command serve.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace entrodraft::launch {

struct HttpRequest {
    std::string method; // "POST"; a HEAD request counts as "GET"
    std::string path;   // without the query
    std::string authorization;
    std::string body;
};

struct HttpOptions {
    std::string address = "127.0.0.1";
    int port = 8000; // 0: the system chooses one
    std::size_t max_body_bytes = std::size_t{16} << 20;
    std::size_t max_connections = 512;
    std::size_t max_unread_bytes = std::size_t{8} << 20; // of an answer; a client that leaves more unread is cut off
    double request_seconds = 30;                         // for a request to come whole
    double write_seconds = 60;                           // for a client to take a part of an answer
    double idle_seconds = 120;                           // between two requests of a connection
};

// One request and its answer. The functions may be called from any thread, and return at once. Once the client is gone
// they do nothing.
class HttpExchange {
  public:
    virtual ~HttpExchange() = default;
    virtual const HttpRequest& request() const = 0;
    // Answers with a whole body. Called once, unless begin_events() was called.
    virtual void answer(int status, std::string body, std::string_view type = "application/json") = 0;
    // Answers with 200 and a stream of server-sent events: begin_events(), event() for each, end_events().
    virtual void begin_events() = 0;
    virtual void event(std::string_view data) = 0;
    virtual void end_events() = 0;
    // True once the client has closed the connection, or was cut off.
    virtual bool is_gone() const = 0;
};

class HttpServer {
  public:
    // Runs on the server's thread for each request, and returns at once. The answer may come later.
    using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;
    // Binds the address, so that a port in use is found early. `on_gone` runs on the server's thread whenever a client
    // with an open request has left. Throws std::runtime_error.
    HttpServer(const HttpOptions& options, Handler handler, std::function<void()> on_gone);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    int port() const;
    // Takes connections from now on.
    void start();
    // Takes no more connections, waits at most `seconds` until the answers that were given are written, and ends the
    // thread.
    void stop(double seconds);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::launch
