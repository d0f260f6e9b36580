// Connections and their answers, by Boost.Beast: see http_server.h.
#include "launch/http/http_server.h"

#include <utility> // Asio of Boost 1.74 needs it, and does not include it

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <fmt/format.h>
#include <future>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

namespace entrodraft::launch {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

using ErrorCode = boost::system::error_code;

constexpr std::uint32_t kMaxHeaderBytes = 64 * 1024;
constexpr double kUnreadSeconds = 2, kPauseSeconds = 0.1;

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

// Returns the beginning of an answer, up to the blank line. `framing` says how long the body is.
std::string head_of(int status, std::string_view type, const std::string& framing, bool keeps_open) {
    const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
    return fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}\r\nConnection: {}\r\nCache-Control: no-cache\r\n{}\r\n", status,
        std::string_view(reason.data(), reason.size()), type, framing, keeps_open ? "keep-alive" : "close",
        status == 401 ? "WWW-Authenticate: Bearer\r\n" : "");
}

std::string refusal(const std::string& message) {
    return fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
                       message);
}

} // namespace

struct HttpServer::Impl {
    class Connection;

    HttpOptions options;
    Handler handler;
    std::function<void()> on_gone;
    std::set<Connection*> connections; // outlives io, which ends the connections that are left
    std::optional<std::promise<void>> all_written;
    bool stopping = false;
    asio::io_context io{1};
    tcp::acceptor acceptor{io};
    asio::steady_timer pause{io}; // after a connection that could not be taken
    std::thread thread;

    void accept();
    void tell_if_all_written();
};

// One connection, on the server's thread. Requests come one after another; while one is answered, the connection only
// watches whether the client leaves.
class HttpServer::Impl::Connection final : public std::enable_shared_from_this<Connection> {
  public:
    class Exchange;

    Connection(Impl& server, tcp::socket socket) : server_(server), stream_(std::move(socket)), idle_(server.io) {
        server_.connections.insert(this);
    }
    ~Connection() {
        server_.connections.erase(this);
        server_.tell_if_all_written();
    }

    void read_request() {
        parser_.emplace();
        parser_->header_limit(kMaxHeaderBytes);
        parser_->body_limit(server_.options.max_body_bytes);
        stream_.expires_after(milliseconds(server_.options.request_seconds));
        http::async_read(stream_, buffer_, *parser_,
                         [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_request(error); });
    }

    // Refuses the connection because there are too many.
    void turn_away() {
        keeps_open_ = false;
        has_unread_ = true;
        write_answer(503, refusal("too many open connections; try again later"), "application/json");
    }

    void write_answer(int status, const std::string& body, std::string_view type) {
        write(head_of(status, type, fmt::format("Content-Length: {}", body.size()), keeps_open_) +
              (is_head_ ? "" : body));
        end_answer();
    }
    void begin_events() { write(head_of(200, "text/event-stream", "Transfer-Encoding: chunked", keeps_open_)); }
    void write_event(const std::string& data) {
        const std::string event = "data: " + data + "\n\n";
        write(fmt::format("{:x}\r\n{}\r\n", event.size(), event));
    }
    void end_events() {
        write("0\r\n\r\n");
        end_answer();
    }

    bool has_unwritten() const { return !closed_ && (!pending_.empty() || exchange_); }
    void close_if_idle() {
        keeps_open_ = false;
        if (!has_unwritten()) close();
    }
    // The bytes that are being written stay in memory until the write has ended.
    void close() {
        closed_ = true;
        idle_.cancel();
        ErrorCode ignored;
        stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
        stream_.socket().close(ignored);
        leave();
    }

  private:
    void on_request(ErrorCode error);
    void watch();
    void write(std::string bytes);
    void write_next();
    void end_answer();
    void next();
    void drop_unread();
    void leave(); // tells the exchange that the client is gone

    Impl& server_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    asio::steady_timer idle_;
    std::shared_ptr<Exchange> exchange_; // of the request that is being answered
    std::deque<std::string> pending_;    // bytes to write; the first are being written
    std::size_t pending_bytes_ = 0;
    bool closed_ = false;
    bool keeps_open_ = true;
    bool is_head_ = false; // the request is HEAD: the answer is that of GET without its body
    bool watches_ = false;
    bool has_unread_ = false; // of a request that is refused
    std::size_t n_dropped_ = 0;
    bool has_more_ = false; // bytes of the next request have come
};

class HttpServer::Impl::Connection::Exchange final : public HttpExchange {
  public:
    Exchange(asio::io_context& io, std::weak_ptr<Connection> connection, HttpRequest request)
        : io_(io), connection_(std::move(connection)), request_(std::move(request)) {}

    const HttpRequest& request() const override { return request_; }
    void answer(int status, std::string body, std::string_view type) override {
        post([status, body = std::move(body), type = std::string(type)](Connection& connection) {
            connection.write_answer(status, body, type);
        });
    }
    void begin_events() override {
        post([](Connection& connection) { connection.begin_events(); });
    }
    void event(std::string_view data) override {
        post([data = std::string(data)](Connection& connection) { connection.write_event(data); });
    }
    void end_events() override {
        post([](Connection& connection) { connection.end_events(); });
    }
    bool is_gone() const override { return is_gone_; }
    void set_gone() { is_gone_ = true; }

  private:
    template <typename Use> void post(Use use) {
        asio::post(io_, [connection = connection_, use = std::move(use), self = this]() {
            const std::shared_ptr<Connection> open = connection.lock();
            if (open && open->exchange_.get() == self) use(*open);
        });
    }

    asio::io_context& io_;
    std::weak_ptr<Connection> connection_;
    HttpRequest request_;
    std::atomic<bool> is_gone_ = false;
};

void HttpServer::Impl::Connection::on_request(ErrorCode error) {
    is_head_ = false;
    if (error) {
        keeps_open_ = false;
        has_unread_ = true;
        if (error == http::error::body_limit)
            return write_answer(
                413, refusal(fmt::format("the body is larger than {} bytes", server_.options.max_body_bytes)),
                "application/json");
        if (error == http::error::header_limit)
            return write_answer(431, refusal("the header is too large"), "application/json");
        const bool is_malformed = error.category() == http::make_error_code(http::error::bad_method).category() &&
                                  error != http::error::end_of_stream && error != http::error::partial_message;
        return is_malformed
                   ? write_answer(400, refusal("this is no HTTP request: " + error.message()), "application/json")
                   : close();
    }
    auto message = parser_->release();
    keeps_open_ = message.keep_alive() && !server_.stopping;
    const std::string target(message.target().data(), message.target().size());
    const auto authorization = message[http::field::authorization];
    is_head_ = message.method() == http::verb::head;
    const auto method = is_head_ ? http::to_string(http::verb::get) : message.method_string();
    exchange_ = std::make_shared<Exchange>(server_.io, weak_from_this(),
                                           HttpRequest{{method.data(), method.size()},
                                                       target.substr(0, target.find('?')),
                                                       {authorization.data(), authorization.size()},
                                                       std::move(message.body())});
    has_more_ = buffer_.size() > 0;
    stream_.expires_never();
    watch();
    server_.handler(exchange_);
}

// Waits for the next request, or for the client to leave.
void HttpServer::Impl::Connection::watch() {
    if (watches_ || has_more_) return;
    watches_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](ErrorCode error) {
        self->watches_ = false;
        if (error || self->closed_) return self->leave();
        char byte = 0;
        ErrorCode failed;
        const std::size_t n = self->stream_.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, failed);
        if (failed || n == 0) return self->close();
        self->has_more_ = true;
        if (!self->has_unwritten()) self->next();
    });
}

void HttpServer::Impl::Connection::write(std::string bytes) {
    if (closed_) return;
    pending_bytes_ += bytes.size();
    if (pending_bytes_ > server_.options.max_unread_bytes && !pending_.empty()) return close(); // a slow reader
    pending_.push_back(std::move(bytes));
    if (pending_.size() == 1) write_next();
}

void HttpServer::Impl::Connection::write_next() {
    stream_.expires_after(milliseconds(server_.options.write_seconds));
    asio::async_write(stream_, asio::buffer(pending_.front()),
                      [self = shared_from_this()](ErrorCode error, std::size_t) {
                          if (error || self->closed_) return self->close();
                          self->pending_bytes_ -= self->pending_.front().size();
                          self->pending_.pop_front();
                          if (!self->pending_.empty()) return self->write_next();
                          self->stream_.expires_never();
                          if (!self->has_unwritten()) self->next();
                      });
}

void HttpServer::Impl::Connection::end_answer() {
    exchange_.reset();
}

// The answer is written: the connection waits for another request, or ends.
void HttpServer::Impl::Connection::next() {
    if (has_unread_) return drop_unread();
    if (!keeps_open_ || server_.stopping) return close();
    idle_.cancel();
    if (std::exchange(has_more_, false)) return read_request();
    idle_.expires_after(milliseconds(server_.options.idle_seconds));
    idle_.async_wait([weak = weak_from_this()](ErrorCode error) {
        const std::shared_ptr<Connection> self = weak.lock();
        if (!error && self && !self->has_unwritten()) self->close();
    });
    watch();
}

// Closing a connection with bytes that were not read would take the answer from the client. Reads them for a while.
void HttpServer::Impl::Connection::drop_unread() {
    ErrorCode ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    stream_.expires_after(milliseconds(kUnreadSeconds));
    stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes),
                            [self = shared_from_this()](ErrorCode error, std::size_t n) {
                                self->n_dropped_ += n;
                                const bool is_much = self->n_dropped_ > 4 * self->server_.options.max_body_bytes;
                                error || is_much ? self->close() : self->drop_unread();
                            });
}

void HttpServer::Impl::Connection::leave() {
    if (!exchange_) return;
    exchange_->set_gone();
    exchange_.reset();
    server_.on_gone();
}

// ---- the server ----

void HttpServer::Impl::accept() {
    acceptor.async_accept([this](ErrorCode error, tcp::socket socket) {
        if (stopping) return;
        if (error) { // no file descriptor is left, say: others will be free again
            pause.expires_after(milliseconds(kPauseSeconds));
            return pause.async_wait([this](ErrorCode) { accept(); });
        }
        socket.set_option(tcp::no_delay(true), error);
        const auto connection = std::make_shared<Connection>(*this, std::move(socket));
        connections.size() > options.max_connections ? connection->turn_away() : connection->read_request();
        accept();
    });
}

void HttpServer::Impl::tell_if_all_written() {
    if (!all_written) return;
    const auto writes = [](Connection* connection) { return connection->has_unwritten(); };
    if (std::none_of(connections.begin(), connections.end(), writes)) {
        all_written->set_value();
        all_written.reset();
    }
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler, std::function<void()> on_gone)
    : impl_(std::make_unique<Impl>()) {
    impl_->options = options;
    impl_->handler = std::move(handler);
    impl_->on_gone = std::move(on_gone);
    ErrorCode error;
    const asio::ip::address address = asio::ip::make_address(options.address, error);
    if (error)
        throw std::runtime_error(
            fmt::format("{} is no address of this machine; give one such as 127.0.0.1", options.address));
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(options.port));
    impl_->acceptor.open(endpoint.protocol(), error);
    if (!error) impl_->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) impl_->acceptor.bind(endpoint, error);
    if (error)
        throw std::runtime_error(
            fmt::format("cannot serve at {} port {}: {}", options.address, options.port, error.message()));
}

HttpServer::~HttpServer() {
    stop(0);
}

int HttpServer::port() const {
    return impl_->acceptor.local_endpoint().port();
}

void HttpServer::start() {
    impl_->acceptor.listen();
    impl_->accept();
    sigset_t all, before; // signals are for the main thread
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    impl_->thread = std::thread([this] { impl_->io.run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void HttpServer::stop(double seconds) {
    if (!impl_->thread.joinable()) return;
    std::promise<void> written;
    std::future<void> done = written.get_future();
    asio::post(impl_->io, [this, &written] {
        impl_->stopping = true;
        ErrorCode ignored;
        impl_->acceptor.close(ignored);
        impl_->all_written = std::move(written);
        const auto open = impl_->connections; // closing takes them out
        for (Impl::Connection* connection : open)
            connection->close_if_idle();
        impl_->tell_if_all_written();
    });
    done.wait_for(milliseconds(seconds));
    impl_->io.stop();
    impl_->thread.join();
}

} // namespace entrodraft::launch
